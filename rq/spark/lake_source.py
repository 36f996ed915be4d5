"""Rows of a Delta table for Spark, without Delta's jar: tasks read the files of one version,
each some of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from rq.spark import delta_store

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import DeltaTable
    from pyarrow.dataset import Dataset
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    Open = Callable[[], Dataset]
FORMAT = "rq_lake"


def rows(spark: SparkSession, where: str, lake: DeltaTable) -> DataFrame:
    """Return the rows of a table as it was when it was loaded from there."""
    spark.dataSource.register(Lake)
    reader = spark.read.format(FORMAT).option("where", where)
    groups = max(1, spark.sparkContext.defaultParallelism) * 4
    return reader.option("version", lake.version()).option("groups", groups).load()


class Lake(DataSource):
    """The source behind `q.table_of`."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> StructType:
        from pyspark.sql.pandas.types import from_arrow_schema

        schema: StructType = from_arrow_schema(self._dataset().schema)
        return schema

    def reader(self, schema: StructType) -> DataSourceReader:
        files = len(list(self._dataset().get_fragments()))
        where, groups = self.options["where"], int(self.options["groups"])
        return Reader(self._dataset, where, files, groups)

    def _dataset(self) -> Dataset:
        where, version = self.options["where"], int(self.options["version"])
        with delta_store.translated(where):
            return delta_store.load_version(where, version).to_pyarrow_dataset()


class Part(InputPartition):
    """The numbers of some files of a version."""

    def __init__(self, numbers: Sequence[int]) -> None:
        super().__init__(tuple(numbers))


class Reader(DataSourceReader):
    """Reads files of a version, which stay as they are."""

    def __init__(self, dataset: Open, where: str, files: int, groups: int) -> None:
        self._dataset, self._where = dataset, where
        self._files, self._groups = files, groups

    def partitions(self) -> Sequence[InputPartition]:
        count = min(self._files, self._groups)
        return [Part(range(first, self._files, count)) for first in range(count)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        dataset = self._dataset()
        files = sorted(dataset.get_fragments(), key=lambda file: file.path)
        for number in partition.value:
            with delta_store.translated(self._where):
                yield from files[number].to_batches(schema=dataset.schema)
