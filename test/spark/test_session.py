"""With which settings a session is started, without starting one."""

from __future__ import annotations

import pytest

from rq.errors import BadConfig
from rq.layout import Root
from rq.spark import session

MEMORY = "spark.driver.memory"


@pytest.fixture
def asked(tmp_path, monkeypatch):
    """Give a function that returns the settings, whatever this process was given."""
    monkeypatch.delenv("RQ_SPARK_CONF", raising=False)
    return lambda master="local[2]", **conf: session.all_settings(
        Root(tmp_path), master, conf
    )


def test_the_queues_settings_come_before_the_scripts_and_these_before_ours(
    asked, monkeypatch
):
    assert asked()["spark.ui.enabled"] == "false"
    script = {MEMORY: "2g", "spark.ui.enabled": "true"}
    assert asked(**script)[MEMORY] == "2g"
    monkeypatch.setenv("RQ_SPARK_CONF", f'{{"{MEMORY}": "4g"}}')
    found = asked(**script)
    assert (found[MEMORY], found["spark.ui.enabled"]) == ("4g", "true")


@pytest.mark.parametrize(
    "master", ["local[*]", "spark://127.0.0.1:7077", "spark://localhost:7077"]
)
def test_what_runs_on_this_host_binds_to_loopback(asked, master):
    found = asked(master)
    assert found["spark.driver.bindAddress"] == session.LOOPBACK
    assert found["spark.driver.host"] == session.LOOPBACK


@pytest.mark.parametrize("master", ["local", "local[*]", "local[2]", "local[2,4]"])
def test_a_local_session_asks_who_connects(asked, master):
    assert asked(master)["spark.authenticate"] == "true"


@pytest.mark.parametrize("master", ["local-cluster[1,1,512]", "spark://127.0.0.1:7077"])
def test_a_cluster_has_a_secret_of_its_operator_or_none(asked, master):
    assert "spark.authenticate" not in asked(master)


def test_a_driver_of_a_cluster_elsewhere_can_be_reached(asked):
    assert "spark.driver.bindAddress" not in asked("spark://big.example.org:7077")


@pytest.mark.parametrize("text", ["{", "[1]", "spark.driver.memory=4g"])
def test_settings_that_are_no_object_are_refused_in_a_sentence(
    asked, monkeypatch, text
):
    monkeypatch.setenv("RQ_SPARK_CONF", text)
    with pytest.raises(BadConfig, match=r"^RQ_SPARK_CONF is no"):
        asked()


def test_where_spark_cannot_write_is_told_in_a_sentence(tmp_path, asked):
    (tmp_path / "spark").write_text("a file")
    with pytest.raises(
        BadConfig, match=rf"^Spark needs to write to {tmp_path}/spark: "
    ):
        asked()
