"""Files of settings of DeepSpeed's, written where a test wants them."""

import json

import pytest


@pytest.fixture
def write(tmp_path):
    def write_table(table):
        path = tmp_path / "ds.json"
        path.write_text(table if isinstance(table, str) else json.dumps(table))
        return path

    return write_table
