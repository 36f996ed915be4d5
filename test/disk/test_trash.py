"""What lies in the trash is listed, whatever its note says."""

import pytest

from rq.config import trash
from rq.layout import Root


@pytest.mark.parametrize(
    "note", ['{"removed": []}', '{"removed": "x"}', "{", "[1]", ""]
)
def test_a_queue_whose_note_was_edited_is_listed_all_the_same(tmp_path, note):
    root = Root(tmp_path)
    root.queue("a").path.mkdir(parents=True)
    place = trash.put(root, root.queue("a"), 7.0)
    assert [(row.name, row.removed) for row in trash.ls(root)] == [("a", 7.0)]
    (place / "trash.json").write_text(note)
    [row] = trash.ls(root)
    assert (row.name, row.removed) == ("a", place.stat().st_ctime)
