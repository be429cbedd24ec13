"""The rates on the pages of ops: the newest run of a case, beside the fastest peer that was right."""

from __future__ import annotations

from pathlib import Path

import measured
import pytest

OLD = """# date: 2026-01-01 10:00 UTC
op,case,who,bytes,median_us,gb_s,share_of_copy,checked
reduce_sum,16x16,numba_baracuda fold f32,1024,8.00,128.0,0.5000,yes
reduce_sum,16x16,torch sum,1024,4.00,256.0,1.0000,yes
reduce_sum,9x9,numba_baracuda fold f32,324,2.00,162.0,0.9000,yes
reduce_sum,9x9,torch sum,324,1.00,324.0,1.8000,off by 3
reduce_sum,9x9,jax sum,324,3.00,108.0,0.6000,yes
reduce_sum,9x9,cupy sum,324,5.00,64.8,0.3600,yes
reduce_sum,5x5,numba_baracuda fold f32,100,,,,off by 1
"""
NEW = """# date: 2026-02-01 10:00 UTC
op,case,us,gb_per_s,copy_gb_per_s,replaced_us,peer_us
reduce_sum,16x16-f32,2.0,512,640,8.0,torch 3.0 (host clock)
"""
LOSS = """# date: 2026-01-15 10:00 UTC
case,who,median_ms,vs_products,checked
small,numba_baracuda auto,2.0,1.1,less exact: grad_weight
small,numba_baracuda row kernel,0.1,,
small,liger,3.0,1.6,yes
"""
SWEEP = """# date: 2026-03-01 10:00 UTC
panel,op,case,who,median_us,checked
columns,reduce_sum,16x16,numba_baracuda fold f32,1.00,yes
"""
HOST = """# date: 2026-03-01 10:00 UTC
what,value,unit
launch,5.8,us
"""


def test_rates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in {"old": OLD, "new": NEW, "loss": LOSS, "sweep": SWEEP, "host": HOST}.items():
        (tmp_path / f"{name}.csv").write_text(text, encoding="utf-8")
    monkeypatch.setattr(measured, "RESULTS", tmp_path)
    assert measured.measured() == {
        "reduce_sum": [
            measured.Rate("16x16", "", 2.0, "512", "80%", "torch: 1.50", "new.csv"),
            measured.Rate("9x9", "fold f32", 2.0, "162.0", "90%", "jax sum: 1.50", "old.csv"),
        ],
        "fused_linear_cross_entropy": [measured.Rate("small", "auto (less exact)", 2000.0, "", "", "liger: 1.50", "loss.csv")],
    }
