"""Shows for every planted bug which test kills it; fails if one survives."""

import argparse
import sys

from plant import copied_tree, judge, mutants


def main() -> int:
    argparse.ArgumentParser(description=__doc__).parse_args()
    survivors = 0
    say = sys.stdout.write
    with copied_tree() as tree:
        for mutant in mutants():
            verdict = judge(mutant, tree)
            survivors += verdict.word in ("survived", "stale")
            say(f"{verdict.word:<9}{verdict.seconds:>5.1f} s  {mutant.name}\n")
            say(f"{'':<18}{verdict.by}\n")
            sys.stdout.flush()
    say(f"\n{len(mutants())} mutants, {survivors} survived\n")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
