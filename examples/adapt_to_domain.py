"""Adapts an encoder to texts of a domain, and shows what changed: adapt_to_domain.py MODEL FILE OUT TEXT [STEPS]."""

from __future__ import annotations

import sys

import osbert


def main(model: str, file: str, out: str, text: str, steps: str = "200") -> None:
    """Print what stands at each [MASK] of TEXT before and after; a model without a masked-LM head gets one first."""
    adapted = osbert.adapt(model, file, out=out, steps=int(steps))
    for name, folder in {"before": model, "after": adapted.folder}.items():
        for fillings in osbert.load(folder).fill(text):
            print(f"{name:6}  " + "  ".join(f"{one.piece} {one.probability:.1%}" for one in fillings))


if __name__ == "__main__":
    main(*sys.argv[1:6])
