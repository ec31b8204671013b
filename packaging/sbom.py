"""The list of what a wheel contains (SBOM), in SPDX 2.3. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["sbom"]

LICENSES = {
    "libuv": "MIT",
    "openssl": "Apache-2.0",
    "libgomp": "GPL-3.0-or-later WITH GCC-exception-3.1",
}
HOMES = {
    "libuv": "https://libuv.org",
    "openssl": "https://www.openssl.org",
    "libgomp": "https://gcc.gnu.org",
}


def sbom(version: str, bundled: Mapping[str, str]) -> dict[str, Any]:
    """Return the list as an SPDX document.

    Args:
        version: of pccl-torch.
        bundled: versions of Debian's packages, by the name of the library.

    Example:
        >>> sbom("0.1.0", {"libuv": "1.44.2-1+deb12u1"})["packages"][1]["versionInfo"]
        '1.44.2-1+deb12u1'
    """
    own = _package("pccl-torch", version, "Apache-2.0", "NOASSERTION")
    packages = [
        _package(name, found, LICENSES[name], HOMES[name]) for name, found in bundled.items()
    ]
    return {
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": "SPDXRef-DOCUMENT",
        "name": f"pccl-torch-{version}",
        "packages": [own, *packages],
        "relationships": [
            _relation("SPDXRef-DOCUMENT", "DESCRIBES", own["SPDXID"]),
            *(_relation(own["SPDXID"], "CONTAINS", one["SPDXID"]) for one in packages),
        ],
    }


def _package(name: str, version: str, license_: str, home: str) -> dict[str, Any]:
    return {
        "SPDXID": f"SPDXRef-{name}",
        "name": name,
        "versionInfo": version,
        "licenseConcluded": license_,
        "licenseDeclared": license_,
        "copyrightText": "NOASSERTION",
        "downloadLocation": home,
    }


def _relation(of: str, kind: str, to: str) -> dict[str, str]:
    return {"spdxElementId": of, "relationshipType": kind, "relatedSpdxElement": to}
