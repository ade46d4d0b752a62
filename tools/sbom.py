"""What an installation brings: a bill of materials and the licences, from the packages' own metadata.

`python -m tools.sbom [--licences]` prints one CycloneDX 1.5 object, or a line for each package with its licence. It
tells of what the package depends on without extras, as it is installed here, and of what that depends on in turn.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from importlib import metadata
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

UNSAID = "not said in its metadata"
# A whole licence text may stand where a name should.
LONGEST = 80


def dependencies(requirements: Iterable[str]) -> list[metadata.Distribution]:
    """Find what is installed here of what is required without extras, and of what that requires in turn."""
    found: dict[tuple[str, str], metadata.Distribution] = {}
    todo = [(Requirement(line), "") for line in requirements]
    while todo:
        wanted, extra = todo.pop()
        if wanted.marker and not wanted.marker.evaluate({"extra": extra}):
            continue
        for asked in ("", *wanted.extras):
            name = (canonicalize_name(wanted.name), asked)
            if name not in found:
                found[name] = metadata.distribution(wanted.name)
                todo += [(Requirement(line), asked) for line in found[name].requires or ()]
    return list({name: distribution for (name, _), distribution in found.items()}.values())


def licence(distribution: metadata.Distribution) -> str:
    """What a package says of its licence: an expression, a short name, or its classifiers."""
    told = distribution.metadata.json
    if expression := told.get("license_expression"):
        return str(expression)
    named = str(told.get("license") or "").strip()
    if named and "\n" not in named and len(named) <= LONGEST and named != "UNKNOWN":
        return named
    classes = [line.split(" :: ")[-1] for line in told.get("classifier") or () if line.startswith("License ::")]
    return "; ".join(classes) or UNSAID


def bill(name: str = "croupier") -> dict[str, Any]:
    """The bill of materials. Nothing in it tells of the machine, so that it is the same for the same packages."""
    own = metadata.distribution(name)
    parts = sorted(dependencies(own.requires or ()), key=lambda one: canonicalize_name(one.name))
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": _component(own, "application")},
        "components": [_component(one, "library") for one in parts],
        "dependencies": [
            {"ref": _reference(one), "dependsOn": sorted({_reference(below) for below in _direct(one)})}
            for one in (own, *parts)
        ],
    }


def _component(one: metadata.Distribution, kind: str) -> dict[str, Any]:
    reference = _reference(one)
    return {
        "type": kind,
        "bom-ref": reference,
        "name": one.name,
        "version": one.version,
        "purl": reference,
        "licenses": [{"license": {"name": licence(one)}}],
    }


def _reference(one: metadata.Distribution) -> str:
    return f"pkg:pypi/{canonicalize_name(one.name)}@{one.version}"


def _direct(one: metadata.Distribution) -> list[metadata.Distribution]:
    wanted = [Requirement(line) for line in one.requires or ()]
    return [metadata.distribution(w.name) for w in wanted if not w.marker or w.marker.evaluate({"extra": ""})]


def main() -> None:
    """Print one or the other."""
    found = bill()
    if "--licences" in sys.argv[1:]:
        for part in found["components"]:
            print(f"{part['name']} {part['version']}: {part['licenses'][0]['license']['name']}")
    else:
        print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
