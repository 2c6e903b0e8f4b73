"""Where the golden data lie: what the public release computes, see tests/fixtures/README.md."""

from pathlib import Path

FIXTURES = Path(__file__).parent / "fixtures"
