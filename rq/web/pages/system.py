"""The system: processes, disk, the settings in force, versions."""

from __future__ import annotations

import asyncio
import platform
import time
from dataclasses import fields
from importlib import metadata
from typing import TYPE_CHECKING, Any

from falcon.asgi import Request, Response

from rq import __version__
from rq.config.settings import RootConfig
from rq.web.pages import facts, page

if TYPE_CHECKING:
    from rq.web.site import Site

_PACKAGES = ("falcon", "gunicorn", "Jinja2", "orjson", "watchdog")


class System:
    """GET /system and its twin."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._disk = facts.Disk()

    async def on_get(self, req: Request, resp: Response) -> None:
        site = self._site
        told, disk = await asyncio.gather(
            facts.supervisor(site), self._disk.facts(site.root)
        )
        children = facts.children(told)
        known = {
            "time": time.time(),
            "operational": bool(told),
            "root": str(site.root.path),
            "supervisor": {
                name: told.get(name) for name in ("version", "pid", "uptime")
            },
            "processes": sorted(children, key=lambda one: (one["kind"], one["name"])),
            "trouble": facts.trouble(told, []),
            "warnings": site.warnings(),
            "disk": disk,
            "config": settings(site.config),
            "versions": versions(),
        }
        await page.show(req, resp, site, "system.html", {"facts": known})


def settings(config: RootConfig) -> list[dict[str, Any]]:
    """Return the settings in force and whether each is the default; no passwords."""
    plain = RootConfig()
    return [
        {
            "name": one.name,
            "value": _safe(one.name, getattr(config, one.name)),
            "default": getattr(config, one.name) == getattr(plain, one.name),
        }
        for one in fields(RootConfig)
    ]


def _safe(name: str, value: Any) -> Any:
    if name == "basic_auth" and value:
        users = value.get("users") or {}
        return {"realm": value.get("realm", ""), "users": sorted(map(str, users))}
    if name == "worker_env":
        return {one: value[one] for one in sorted(value)}
    return list(value) if isinstance(value, tuple) else value


def versions() -> dict[str, str]:
    """Return the versions of RQ and of what it stands on."""
    found = {"RQ": __version__, "Python": platform.python_version()}
    for name in _PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "?"
    return {**found, "Linux": platform.release()}
