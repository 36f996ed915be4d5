"""The system: processes, disk, the settings in force, versions."""

from __future__ import annotations

import asyncio
import platform
import time
from collections.abc import Mapping
from dataclasses import dataclass, fields
from importlib import metadata

from falcon.asgi import Request, Response

from rq import __version__
from rq.access.roles import Role
from rq.config import secrets
from rq.config.settings import RootConfig
from rq.web import views
from rq.web.answers import sees_secrets
from rq.web.pages import facts, page
from rq.web.pages.overview import supervisor_facts
from rq.web.routes import Routes
from rq.web.site import Site

_PACKAGES = ("falcon", "gunicorn", "Jinja2", "orjson", "watchdog")


def add_routes(routes: Routes, site: Site) -> None:
    """Add the page of the system and its twin."""
    kept = facts.Disk()

    async def show(req: Request, resp: Response) -> None:
        status, disk = await asyncio.gather(
            views.supervisor(site.owners), kept.facts(site.root)
        )
        children = status.get("children") or []
        system = {
            "time": time.time(),
            "operational": bool(status),
            "root": str(site.root.path),
            "supervisor": supervisor_facts(status),
            "processes": sorted(
                children, key=lambda child: (child["kind"], child["name"])
            ),
            "trouble": facts.trouble(status, []),
            "warnings": site.warnings(),
            "disk": disk,
            "config": settings(site.config, open_to=sees_secrets(req)),
            "versions": versions(),
        }
        await page.show(req, resp, site, "system.html", {"facts": system})

    for path in ("/system", "/system.json"):
        routes.get(path, show, Role.VIEWER)


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """A setting of the root, as it is shown."""

    name: str
    value: object
    default: bool  # it is what it is without a config file


def settings(config: RootConfig, *, open_to: bool) -> list[Setting]:
    """Return the settings in force, without passwords; `open_to`: with what is for admins."""
    plain = RootConfig()
    return [
        Setting(
            name=field.name,
            value=_safe(field.name, getattr(config, field.name), open_to=open_to),
            default=getattr(config, field.name) == getattr(plain, field.name),
        )
        for field in fields(RootConfig)
    ]


def _safe(name: str, value: object, *, open_to: bool) -> object:
    if name == "basic_auth" and isinstance(value, Mapping) and value:
        users = value.get("users") or {}
        return {"realm": value.get("realm", ""), "users": sorted(map(str, users))}
    if not open_to:
        value = secrets.masked({name: value})[name]
    if name == "worker_env" and isinstance(value, Mapping):
        return {key: value[key] for key in sorted(value)}
    return list(value) if isinstance(value, tuple) else value


def versions() -> dict[str, str]:
    """Return the versions of RQ and of what it stands on."""
    versions = {"RQ": __version__, "Python": platform.python_version()}
    for name in _PACKAGES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            versions[name] = "?"
    return {**versions, "Linux": platform.release()}
