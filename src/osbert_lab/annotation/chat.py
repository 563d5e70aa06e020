"""Chats with one question and one answer a row, as language models are tuned on them: the answer is the label.

{"messages": [{"role": "user", "content": TEXT}, {"role": "assistant", "content": LABEL}]} is OpenAI's form,
{"conversations": [{"from": "human", "value": TEXT}, {"from": "gpt", "value": LABEL}]} ShareGPT's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from osbert.reading.record_forms.contract import RecordForm

_FORMS = (("messages", "role", "content"), ("conversations", "from", "value"))
"""The field of the turns, and in a turn those of the role and the text."""
_ASKING, _ANSWERING, _SETTING = ("user", "human"), ("assistant", "gpt"), ("system", "developer")


class Chat(RecordForm):
    """A chat of one text and its answer, perhaps below a system prompt, which is a column of its own."""

    title: ClassVar[str] = "chats"

    @classmethod
    def claims(cls, record: Mapping[str, Any]) -> bool:
        """Return whether a record has turns with roles, and no text beside them."""
        return "text" not in record and any(
            isinstance(turns := record.get(name), list)
            and bool(turns)
            and all(isinstance(turn, Mapping) and {role, content} <= {*turn} for turn in turns)
            for name, role, content in _FORMS
        )

    def read(self, record: Mapping[str, Any]) -> Iterable[dict[str, Any]]:
        """Return the text and its answer as its label. Raises ValueError for other turns than these."""
        name, role, content = next(form for form in _FORMS if isinstance(record.get(form[0]), list))
        row = {field: value for field, value in record.items() if field != name}
        texts: dict[str, str] = {}
        for turn in record[name]:
            speaker, text = turn.get(role), turn.get(content)
            known = zip(("text", "label", "system"), (_ASKING, _ANSWERING, _SETTING))
            column = next((column for column, roles in known if speaker in roles), "")
            if not column or not isinstance(text, str):
                raise ValueError(f"a turn of {speaker!r} has the {content} {str(text)[:40]!r}: expected a text")
            if column in texts:
                raise ValueError(f"the chat has several turns of {speaker!r}: write a row for each text and its answer")
            texts[column] = text
        if "text" not in texts:
            raise ValueError(f"the chat has no turn of {_ASKING[0]!r}: it has no text")
        return [row | texts]
