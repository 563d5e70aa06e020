"""Calls that a type checker accepts or refuses: mypy, which `make check` runs, refuses an unused `type: ignore`."""

from __future__ import annotations

import osbert

osbert.predict("run", "rows.csv", out="predicted.csv", top_k=3, abstain=0.6, text="body", workers=2, trust=True)
osbert.finetune("classify", model="encoder", data="rows.csv", out="run", epochs=4, dev=[("a text", "pos")])
osbert.pretrain("cpu", corpus="corpus", out="encoder", steps=100, data_length=64, objectives=["mlm"], mlm_rate=0.2)
osbert.adapt("encoder", ["a text"], out="adapted", general="general.txt", steps=100)
osbert.export("run", int8=True, data="more.csv")

osbert.predict("run", "rows.csv", out="predicted.csv", top_n=3)  # type: ignore[call-arg]
osbert.predict("run", "rows.csv", out="predicted.csv", top_k="3")  # type: ignore[arg-type]
osbert.finetune("classify", model="encoder", data="rows.csv", out="run", tuning="half")  # type: ignore[arg-type]
osbert.search("vectors.npy", "a query", backend="hnsw")  # type: ignore[arg-type]
osbert.train_tokenizer("text.txt", out="vocabulary", lowercase="yes")  # type: ignore[arg-type]
