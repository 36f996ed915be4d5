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


NOTED = ("schemas/a/csv.json", "days/a.sqlite", "days/a/2026-11-02.lock")


def test_what_jobs_have_noted_of_a_queue_goes_and_comes_with_it(tmp_path):
    root = Root(tmp_path)
    root.queue("a").path.mkdir(parents=True)
    others = ("schemas/ab/csv.json", "days/ab.sqlite", "tables/a/hits/x.parquet")
    for name in (*NOTED, *others):
        (root.spark / name).parent.mkdir(parents=True, exist_ok=True)
        (root.spark / name).write_text(name)
    trash.put(root, root.queue("a"))
    assert [name for name in NOTED if (root.spark / name).exists()] == []
    [row] = trash.ls(root)
    trash.take_back(root, row)
    for name in (*NOTED, *others):
        assert (root.spark / name).read_text() == name
    assert not (root.queue("a").path / "spark").exists()


def test_a_new_queue_of_a_name_knows_nothing_of_the_one_before(tmp_path):
    root = Root(tmp_path)
    for text in ("old", "new"):
        root.queue("a").path.mkdir(parents=True)
        (root.spark / NOTED[0]).parent.mkdir(parents=True)
        (root.spark / NOTED[0]).write_text(text)
        trash.put(root, root.queue("a"))
    assert not (root.spark / "schemas/a").exists()
    assert len(list(trash.empty(trash.ls(root)))) == 2
    assert list(root.trash.iterdir()) == []
