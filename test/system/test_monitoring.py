"""The files of examples/monitoring do what the guide says: promtool of Debian runs them."""

import re
import shutil
import subprocess

import pytest
from harness import documents
from harness.checkout import CHECKOUT

from rq.timers import crontab

pytestmark = pytest.mark.system

FILES = CHECKOUT / "examples/monitoring"
RULES = (FILES / "alerts.yml").read_text()
METRIC = re.compile(r"\b(rq_[a-z_]+)\b")
SERIES = re.compile(r"_(?:bucket|sum|count)$")  # of a histogram


@pytest.fixture(scope="module")
def promtool():
    if shutil.which("promtool") is None:
        pytest.skip("no promtool -> apt-get install prometheus")

    def run(*words):
        done = subprocess.run(
            ["promtool", *words], capture_output=True, text=True, cwd=FILES, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr

    return run


@pytest.mark.parametrize(
    "words",
    [
        ("check", "config", "prometheus.yml"),
        ("check", "rules", "alerts.yml"),
        ("test", "rules", "alerts_test.yml"),
    ],
    ids=" ".join,
)
def test_promtool_takes_the_examples(promtool, words):
    promtool(*words)


def test_each_rule_is_shown_telling_and_not_telling():
    tests = (FILES / "alerts_test.yml").read_text()
    for name in re.findall(r"alert: (\w+)", RULES):
        assert f"alertname: {name}, exp_alerts: []" in tests, name
        assert f"alertname: {name}\n        exp_alerts:\n" in tests, name


def test_rules_ask_for_metrics_that_there_are():
    page = documents.REFERENCE / "metrics.md"
    metrics = {
        word
        for title in ("The root", "Queues", "The broker")
        for row in documents.rows(documents.section(page, title), "metric")
        for word in documents.WORD.findall(row[0])
    }
    text = RULES + (CHECKOUT / "docs/guide/monitor.md").read_text()
    assert {SERIES.sub("", name) for name in METRIC.findall(text)} <= metrics


def test_the_dead_mans_switch_is_a_line_that_rq_imports():
    (line,) = crontab.parse((FILES / "ping.crontab").read_text(), "UTC").entries
    assert line.command.startswith("/opt/rq/bin/check_rq ")
    assert line.command.endswith("https://ping.example/YOUR-ID")
