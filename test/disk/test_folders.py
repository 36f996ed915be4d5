"""Reading message folders page by page, without listing what is not shown."""

from __future__ import annotations

from itertools import islice

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rq.layout import QueueDir
from rq.spool import folders
from rq.words.states import State

IDS = st.builds(
    "{:08}.{:02}{:02}.{:02}.{:03}.{}".format,
    st.integers(20260101, 20260103),
    st.integers(0, 2),
    st.integers(0, 2),
    st.integers(0, 2),
    st.integers(0, 2),
    st.integers(1, 3),
)


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sets(IDS, max_size=30), IDS, st.sampled_from([State.DONE, State.ERR]))
def test_pages_hold_every_message_once(tmp_path_factory, ids, between, state):
    queue = QueueDir(tmp_path_factory.mktemp("q"))
    for msg_id in ids:
        queue.message(state, msg_id).mkdir(parents=True)
    found, after = [], ""
    while page := list(islice(folders.newest_first(queue, state, after), 4)):
        found += page
        after = page[-1]
    assert found == sorted(ids, reverse=True)
    older = list(folders.newest_first(queue, state, between))
    assert older == sorted((one for one in ids if one < between), reverse=True)
