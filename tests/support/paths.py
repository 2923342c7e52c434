"""Where things lie: the checkout, the programs that tests start, the reference data beside it."""

from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
SUPPORT = REPOSITORY / "tests" / "support"
SHARED_DATA = REPOSITORY.parent / "shared" / "data"
FIXTURES = REPOSITORY / "tests" / "fixtures"
