"""Hatchling's hook for the addresses in the package's metadata: those of the repository whose workflow builds it.

A build outside of a workflow names none, so that a fork does not point to a project that it is not.
"""

from __future__ import annotations

import os
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface


def addresses(server: str, repository: str) -> dict[str, str]:
    """``[project.urls]`` of a repository "owner/name"; its site is that of ``.github/workflows/docs.yml``."""
    owner, _, name = repository.partition("/")
    source = f"{server}/{repository}"
    return {
        "Documentation": f"https://{owner}.github.io/{name}/",
        "Source": source,
        "Issues": f"{source}/issues",
        "Changelog": f"{source}/blob/main/CHANGELOG.md",
    }


class AddressHook(MetadataHookInterface):
    """Fills in ``urls``."""

    def update(self, metadata: dict[str, Any]) -> None:
        server, repository = os.environ.get("GITHUB_SERVER_URL"), os.environ.get("GITHUB_REPOSITORY")
        if server and repository:
            metadata["urls"] = addresses(server, repository)
