// Load for the benches: an engine that streams and stamps, and a client that sends at a rate.
// One job: to be faster and steadier than what is measured. It knows nothing of the product but HTTP/1.1.
package main

import (
	"fmt"
	"os"
)

func main() {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case "engine":
			engine(os.Args[2:])
			return
		case "client":
			client(os.Args[2:])
			return
		case "turns":
			turns(os.Args[2:])
			return
		}
	}
	fmt.Fprintln(os.Stderr, "usage: load engine|client|turns [options]")
	os.Exit(2)
}
