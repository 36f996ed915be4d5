"""The templates of the web, compiled once for all the webs that are forked from a process:
to compile them takes most of the time of a start."""

from __future__ import annotations

import functools
from types import SimpleNamespace

import jinja2
from jinja2.bccache import Bucket

from rq.web.pages import templating
from rq.web.pages.templating import Addresses


class Compiled(jinja2.BytecodeCache):
    """What templates have become, in memory."""

    def __init__(self) -> None:
        self._codes: dict[str, bytes] = {}

    def load_bytecode(self, bucket: Bucket) -> None:
        if code := self._codes.get(bucket.key):
            bucket.bytecode_from_string(code)

    def dump_bytecode(self, bucket: Bucket) -> None:
        self._codes[bucket.key] = bucket.bytecode_to_string()


@functools.cache
def compile_once() -> None:
    """Compile all templates, for the sites of this process and of those forked from it."""
    compiled, environment = Compiled(), templating.environment

    def kept(site: Addresses) -> jinja2.Environment:
        templates = environment(site)
        templates.bytecode_cache = compiled
        return templates

    templating.environment = kept
    templates = kept(SimpleNamespace(url=None, config=None, is_queue=None))
    for name in templates.list_templates():
        templates.get_template(name)
