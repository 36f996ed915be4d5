"""Delta tables in a store, as programs see them that know nothing of RQ."""

from __future__ import annotations

import os

from deltalake import DeltaTable
from pyarrow import fs, parquet

from harness.delta_jobs import seen_of

RIGHTS = {"AWS_ACCESS_KEY_ID": "tests", "AWS_SECRET_ACCESS_KEY": "tests"}


class Lake:
    """A bucket of its own, in which a queue has its tables below `lake/`."""

    def __init__(self, store, way=""):
        """`way`: the host by which a queue reaches the store, if there is another one."""
        self.end, self._host = store
        self.end = self.end.replace(self._host, way or self._host)
        self.bucket = f"tables-{os.urandom(4).hex()}"
        self.system = fs.S3FileSystem(
            endpoint_override=self._host,
            scheme="http",
            region="us-east-1",
            access_key="tests",
            secret_key="tests",
            allow_bucket_creation=True,
            allow_bucket_deletion=True,
        )
        self.system.create_dir(self.bucket)
        self._told = {
            "AWS_ENDPOINT_URL": f"http://{self._host}",
            "AWS_ALLOW_HTTP": "true",
            "AWS_REGION": "us-east-1",
            **RIGHTS,
        }

    @property
    def setting(self):
        return f"s3://{self.bucket}/lake/{self.end}"

    def table(self, name="flights"):
        where = f"s3://{self.bucket}/lake/{name}"
        return DeltaTable(where, storage_options=self._told)

    def rows(self, column="n", name="flights"):
        """Return what independent readers see of a column: the same."""
        table = self.table(name)
        seen = seen_of(table, column, self._told)
        paths = [uri.removeprefix("s3://") for uri in table.file_uris()]
        metas = [parquet.read_metadata(p, filesystem=self.system) for p in paths]
        assert sum(meta.num_rows for meta in metas) == len(seen)
        return seen

    def columns(self, name, *columns):
        """Return some columns of each row of a table, sorted."""
        rows = self.table(name).to_pyarrow_table(columns=list(columns)).to_pylist()
        return sorted(tuple(row[column] for column in columns) for row in rows)

    def pairs(self, name):
        """Return the message and the line of each row of a table of lines."""
        pairs = self.columns(name, "msg_id", "line")
        assert self.rows("line", name) == sorted(line for _, line in pairs)
        return pairs

    def names(self):
        """Return which tables there are."""
        logs = [path for path in self._files() if "/_delta_log/" in path]
        return sorted({path.split("/")[2] for path in logs})

    def left(self):
        """Return files that no reader sees."""
        return [path for path in self._files() if "/_rq/" in path]

    def _files(self):
        every = self.system.get_file_info(fs.FileSelector(self.bucket, recursive=True))
        return [entry.path for entry in every if entry.is_file]

    def empty(self):
        """Remove all that is in the bucket."""
        self.system.delete_dir_contents(self.bucket)
