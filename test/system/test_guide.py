"""The guide's commands print what its pages show, on an RQ of each page's own."""

import json

import pytest
from harness import guide
from harness.documents import examples_of
from harness.registries import redis_cli

pytestmark = [pytest.mark.system, pytest.mark.long]

PLAYED = [page for page in guide.PAGES if guide.played(page)]


@pytest.mark.slow
@pytest.mark.parametrize("page", PLAYED, ids=lambda page: page.name)
def test_the_commands_of_a_page_print_what_it_shows(page, tmp_path):
    if any("redis-cli" in block for _, block in guide.played(page)):
        redis_cli()
    with guide.shell(tmp_path) as bash:
        for language, block in guide.played(page):
            for step in guide.steps(language, block):
                printed, status = guide.play(bash, step)
                assert step.fails or status == 0, f"{step.command}\n{printed}"
                if step.shown is not None:
                    assert guide.is_as_shown(step.shown, printed), (
                        f"$ {step.command}\n{printed}\n--- the page shows:\n{step.shown}"
                    )


@pytest.mark.slow
def test_the_first_request_of_the_reference_sends_a_message(tmp_path):
    [text] = examples_of("sh", "web")
    with guide.shell(tmp_path) as bash:
        printed, status = bash.run(text)
        assert status == 0
        assert json.loads(printed)[0] == "ok"
