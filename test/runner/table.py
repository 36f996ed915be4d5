"""The closing table of a run: a row for each part, then one line of counts."""

from dataclasses import dataclass, field


@dataclass(slots=True)
class Row:
    """What the closing table says of a part."""

    part: str
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    seconds: float = 0.0
    budget: float = 0.0  # seconds that it may take in CI
    whys: list[str] = field(default_factory=list)
    left_out: bool = False  # by --without: no failure anywhere

    def fail(self, why: str) -> None:
        self.failed += 1
        self.whys.append(why)


def close(rows: list[Row], strict: bool) -> int:
    """Print the table and the line of counts; return the exit status. If `strict`, what
    was skipped counts as failed."""
    if strict:
        for row in rows:
            if not row.left_out:
                row.failed, row.skipped = row.failed + row.skipped, 0
    head = f"{'part':<9}{'passed':>7}{'failed':>7}{'skipped':>8}{'seconds':>9}{'of':>6}"
    print(f"\n{head}  why")
    for row in rows:
        numbers = f"{row.passed:>7}{row.failed:>7}{row.skipped:>8}{row.seconds:>9.1f}"
        numbers += f"{row.budget or '':>6}"
        first, *rest = [explained(why) for why in dict.fromkeys(row.whys)] or [""]
        print(f"{row.part:<9}{numbers}  {first}".rstrip())
        for why in rest:
            print(f"{'':<{len(head)}}  {why}")
    passed = sum(row.passed for row in rows)
    failed = sum(row.failed for row in rows)
    skipped = sum(row.skipped for row in rows)
    print(f"\n{passed} passed, {failed} failed, {skipped} skipped", flush=True)
    return 0 if passed and not failed else 1


def explained(why: str) -> str:
    reason, arrow, command = why.partition(" -> ")
    return f"{reason}; get it: {command}" if arrow else reason
