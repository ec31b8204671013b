"""The metrics: code, documentation, dashboard and alerts have the same names."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CODE = ROOT / "master/operator/metrics.cc"
GOLDEN = ROOT / "tests/cpp/master/operator/test_metrics.cc"
DOCUMENT = ROOT / "docs/watching.md"
RULES = ROOT / "packaging/prometheus/pccl.rules.yml"
DASHBOARD = ROOT / "packaging/grafana/pccl.json"
SECONDS = 60  # for promtool


def _families() -> dict[str, str]:
    """Returns the type of each metric by its name, from the table in the code."""
    rows = re.findall(r'\{"(pccl_\w+)", k(Counter|Gauge|Histogram),', CODE.read_text())
    assert rows, "the table in metrics.cc has another form"
    return {name: kind.lower() for name, kind in rows}


def _golden() -> str:
    found = re.search(r'kGolden =\s+R"\((.*?)\)";', GOLDEN.read_text(), re.DOTALL)
    assert found, "the golden text in test_metrics.cc has another form"
    return found[1]


def _used(text: str) -> set[str]:
    """Returns the names of metrics in queries, a histogram without its suffix."""
    names = set(re.findall(r"\bpccl_[a-z_]+", text))
    return {re.sub(r"_(bucket|sum|count)$", "", name) for name in names}


def _promtool(*arguments: str, text: str = "") -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not here: `apt-get install prometheus` brings it")
    done = subprocess.run(
        [promtool, *arguments],
        input=text,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert not done.stderr.strip(), done.stderr


def test_the_document_has_each_metric_with_its_type():
    rows = re.findall(r"^\| `(pccl_\w+)` \| (\w+) \|", DOCUMENT.read_text(), re.MULTILINE)
    assert dict(rows) == _families()
    assert [name for name, _ in rows] == list(_families()), "in the order of the code"


def test_the_golden_text_has_each_metric():
    names = re.findall(r"^# TYPE (\w+) ", _golden(), re.MULTILINE)
    assert set(names) == set(_families())


def test_labels_are_those_of_the_document():
    labels = set(re.findall(r'[{,](\w+)="', _golden()))
    allowed = {"run", "group", "peer", "to", "reason", "kind", "outcome", "code", "le"}
    assert labels <= allowed | {"version", "protocol"}


@pytest.mark.parametrize("path", [RULES, DASHBOARD], ids=["rules", "dashboard"])
def test_queries_use_metrics_that_exist(path):
    used = _used("\n".join(re.findall(r'"?expr"?: .*', path.read_text())))
    assert used
    assert used <= set(_families())


def test_the_dashboard_is_json_that_grafana_imports():
    dashboard = json.loads(DASHBOARD.read_text())
    assert dashboard["title"] == "pccl"
    assert "__inputs" not in dashboard, "the data source is a variable"
    ids = [panel["id"] for panel in dashboard["panels"]]
    assert len(ids) == len(set(ids))


def test_promtool_accepts_the_metrics():
    _promtool("check", "metrics", text=_golden())


def test_promtool_accepts_the_rules():
    _promtool("check", "rules", str(RULES))
