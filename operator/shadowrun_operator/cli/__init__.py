"""The `shadowrun` command: wait for a verdict, read a report. It reads from the cluster and never writes."""
