"""Writing the shipped tables from raw fact files, once per snapshot: `python -m pricing.sources.snapshot RAW_FOLDER`.

Owns the translation of the raw columns into our schema, which rows are left out and which figures count as verified.
Not used while planning. RAW_FOLDER holds `pricing/` (offers, GPUs, extras, spot advisor) and `throughput/`.

Left out: 239 AWS rows of February 2024 (old, and their source is CC BY-SA 4.0). `billing.csv` is kept by hand.
"""

from __future__ import annotations

import csv
import re
import sys
from collections.abc import Iterable, Iterator
from decimal import Decimal
from pathlib import Path

from pricing.sources.measurements import throughput_rows

Row = dict[str, str]
LEFT_OUT = "sparecores-data"
VERIFIED_ON_DEMAND = {
    "anycloud-sh/catalog aws": "yes",
    "aws/karpenter-provider-aws": "yes",
    "Cyclenerd": "yes",
    "anycloud-sh/catalog gcp/vms.csv @62ff0a9 (Cloud": "yes",
    "anycloud-sh/catalog azure": "yes",
    "on-site record of a running instance": "yes",
}
"""By the beginning of the source: the on-demand price was compared with a second source. No spot price could be."""
ITEMS = {
    ("aws", "block storage gp3"): ("disk",),
    ("gcp", "block storage pd-balanced"): ("disk",),
    ("azure", "block storage Standard SSD"): ("disk",),
    ("alibaba", "block storage ESSD PL1"): ("disk",),
    ("aws", "public IPv4 address in use"): ("public IPv4",),
    ("gcp", "external IPv4 on a standard VM"): ("public IPv4",),
    ("gcp", "external IPv4 on a spot VM"): ("public IPv4 (spot)",),
    ("azure", "public IPv4 standard static"): ("public IPv4",),
    ("alibaba", "public IPv4 assigned by ECS"): ("public IPv4",),
    ("aws", "object storage S3 Standard"): ("object storage",),
    ("gcp", "object storage Standard regional"): ("object storage",),
    ("azure", "object storage Blob Hot LRS"): ("object storage",),
    ("alibaba", "object storage OSS Standard LRS mainland"): ("object storage",),
    ("aws", "object storage S3 Standard PUT/COPY/POST/LIST"): ("object storage write requests",),
    ("aws", "object storage S3 Standard GET"): ("object storage read requests",),
    ("gcp", "object storage Standard class A operation"): ("object storage write requests",),
    ("gcp", "object storage Standard class B operation"): ("object storage read requests",),
    ("alibaba", "object storage OSS requests mainland"): (
        "object storage write requests",
        "object storage read requests",
    ),
    ("aws", "egress to internet 100 GB-10 TB/month"): ("egress to internet",),
    ("gcp", "egress to internet 0-1 TB/month"): ("egress to internet",),
    ("azure", "egress to internet 100 GB-10 TB/month"): ("egress to internet",),
    ("alibaba", "egress pay-by-traffic mainland"): ("egress to internet",),
    ("aws", "cross-region transfer"): ("cross-region transfer",),
    ("gcp", "cross-region transfer within North America"): ("cross-region transfer",),
    ("azure", "cross-region transfer"): ("cross-region transfer",),
}
"""Raw items that become rates; where several regions have one, the first row is taken."""
DISK_MONTH_HOURS = Decimal(730)


def main(raw: Path, out: Path) -> None:
    """Write every shipped table into `out`."""
    offers = [row for row in _read(raw / "pricing/offers.csv") if LEFT_OUT not in row["source"]]
    sources = _sources(offers)
    _write(out / "sources.csv", sources.values())
    _write(out / "instance_types.csv", _instance_types(offers))
    _write(out / "offers.csv", _offers(offers, sources))
    _write(out / "gpus.csv", _gpus(raw))
    _write(out / "rates.csv", _rates(raw))
    _write(out / "spot_advisor.csv", _advisor(raw))
    _write(out / "throughput.csv", throughput_rows(raw / "throughput"))


def _read(path: Path) -> list[Row]:
    """Rows, without the search-index numbers that some source texts carry: they mean nothing to a reader."""
    with path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    return [{name: re.sub(r" \(index ids? [^)]*\)", "", value) for name, value in row.items()} for row in rows]


def _write(path: Path, rows: Iterable[Row]) -> None:
    rows = list(rows)
    temporary = path.with_suffix(".tmp")
    with temporary.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, fieldnames=list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    temporary.replace(path)


def _sources(offers: list[Row]) -> dict[tuple[str, str], Row]:
    """One row per distinct source and date of the offers, in the order of their first use."""
    found: dict[tuple[str, str], Row] = {}
    for row in offers:
        key = (row["source"], row["as_of"])
        if key not in found:
            verified = next((yes for start, yes in VERIFIED_ON_DEMAND.items() if row["source"].startswith(start)), "no")
            found[key] = {
                "id": f"{row['provider']}-{sum(each['id'].startswith(row['provider']) for each in found.values()) + 1}",
                "observed_at": row["as_of"],
                "on_demand_verified": verified,
                "spot_verified": "no",
                "source": row["source"],
            }
    return found


def _instance_types(offers: list[Row]) -> Iterator[Row]:
    seen: dict[tuple[str, str], Row] = {}
    for row in offers:
        count = Decimal(row["gpu_count"])
        seen[row["provider"], row["instance_type"]] = {
            "provider": row["provider"],
            "name": row["instance_type"],
            "gpu": row["gpu_model"],
            "gpu_count": str(max(1, int(count))),
            "gpu_share": str(min(count, Decimal(1))),
            "gpu_memory_gib": row["gpu_memory_gib"],
            "vcpus": row["vcpus"],
            "memory_gib": row["memory_gib"],
            "local_ssd_gb": row["local_ssd_gb"],
        }
    return (seen[key] for key in sorted(seen))


def _offers(offers: list[Row], sources: dict[tuple[str, str], Row]) -> Iterator[Row]:
    for row in sorted(offers, key=lambda row: (row["provider"], row["instance_type"], row["region"], row["zone"])):
        yield {
            "provider": row["provider"],
            "instance": row["instance_type"],
            "region": row["region"],
            "zone": row["zone"],
            "on_demand_usd_per_hour": row["on_demand_usd_per_hour"],
            "spot_usd_per_hour": row["spot_usd_per_hour"],
            "source": sources[row["source"], row["as_of"]]["id"],
        }


def _gpus(raw: Path) -> Iterator[Row]:
    for row in _read(raw / "pricing/gpus.csv"):
        yield {
            "name": row["gpu_model"],
            "architecture": row["architecture"],
            "memory_gib": row["memory_gib"],
            "fp32_tflops": row["fp32_tflops"],
            "fp16_tensor_tflops": row["fp16_tensor_tflops_dense"],
            "bf16_tensor_tflops": row["bf16_tensor_tflops_dense"],
            "memory_bandwidth_gb_s": row["memory_bandwidth_gb_s"],
            "source": row["source"],
        }


def _rates(raw: Path) -> Iterator[Row]:
    done = set()
    for row in _read(raw / "pricing/extras.csv"):
        for item in ITEMS.get((row["provider"], row["item"]), ()):
            if (row["provider"], item) in done:
                continue
            done.add((row["provider"], item))
            usd, unit = _in_our_unit(Decimal(row["usd"]), row["unit"])
            yield {
                "provider": row["provider"],
                "item": item,
                "usd": f"{usd.normalize():f}" if usd else "0",
                "unit": unit,
                "region": row["region"],
                "observed_at": row["as_of"],
                "verified": row["verified_here"],
                "source": f"{row['item']}: {row['source']}",
            }


def _in_our_unit(usd: Decimal, unit: str) -> tuple[Decimal, str]:
    if unit == "GB-hour":
        return usd * DISK_MONTH_HOURS, "GiB-month"
    if unit == "10000 requests":
        return usd / 10, "1000 requests"
    return usd, unit.replace("GB-", "GiB-")


def _advisor(raw: Path) -> Iterator[Row]:
    for row in _read(raw / "pricing/aws_spot_advisor.csv"):
        yield {
            "region": row["region"],
            "instance": row["instance_type"],
            "bucket": row["interruption_frequency_per_month"],
            "observed_at": row["as_of"],
        }


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(__file__).parents[1] / "data")
