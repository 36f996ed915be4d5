"""What the files of bronze tell without Spark."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rq.errors import Damaged
from rq.spark import bronze


@pytest.mark.parametrize("look", [bronze.extent, bronze.touched])
def test_a_damaged_file_is_named_wherever_it_is_damaged(tmp_path, look):
    """At its end, which tells what is in it; or in the middle, which nobody reads before."""
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"ts": list(range(1000))}), path, compression="zstd")
    whole = path.read_bytes()
    assert look(tmp_path)
    path.write_bytes(whole[:4] + bytes(200) + whole[204:])
    if look is bronze.touched:
        with pytest.raises(Damaged, match=r"a\.parquet"):
            look(tmp_path)
    path.write_bytes(whole[:-100] + bytes(100))
    with pytest.raises(Damaged, match=r"a\.parquet"):
        look(tmp_path)
