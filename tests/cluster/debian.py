"""Installs the Debian packages the local cluster is made of, when they are missing."""

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from .commands import ClusterError, environment, run


@dataclass(frozen=True)
class Package:
    """A Debian package and the file that shows it is there."""

    name: str
    evidence: str

    def installed(self) -> bool:
        if self.evidence.startswith("/"):
            return Path(self.evidence).exists()
        return shutil.which(self.evidence, path=environment()["PATH"]) is not None


PACKAGES = (
    Package("runc", "runc"),
    Package("containernetworking-plugins", "/usr/lib/cni/bridge"),
    Package("nftables", "nft"),
    Package("conntrack", "conntrack"),
    Package("iproute2", "ip"),
    Package("openssl", "openssl"),
    Package("buildah", "buildah"),
    Package("mmdebstrap", "mmdebstrap"),
    Package("busybox-static", "/bin/busybox"),
    Package("iptables", "iptables"),  # this and ipset for `policies`
    Package("ipset", "ipset"),
)


def missing() -> list[str]:
    return [package.name for package in PACKAGES if not package.installed()]


def install(names: list[str]) -> None:
    """Install packages; the package lists are refreshed only when they do not serve."""
    if not names:
        return
    if shutil.which("apt-get") is None:
        raise ClusterError(f"these Debian packages are missing and there is no apt-get: {' '.join(names)}")
    if os.geteuid() != 0:
        raise ClusterError(f"these Debian packages are missing, root may install them: {' '.join(names)}")
    quiet = {"DEBIAN_FRONTEND": "noninteractive"}
    line = ["apt-get", "-o", "DPkg::Lock::Timeout=300", "install", "--yes", "--no-install-recommends", *names]
    try:
        run(line, env=quiet)
    except ClusterError:
        run(["apt-get", "update"], env=quiet)
        run(line, env=quiet)
