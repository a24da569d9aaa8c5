"""What LangChain's and LlamaIndex's OpenAI classes get from a server: run in their own environment, prints JSON.

``ask.py URL``; the server's model also goes by the name gpt-4o-mini, since LlamaIndex only takes names that it knows.
"""

from __future__ import annotations

import json
import sys

from langchain_openai import ChatOpenAI, OpenAI
from llama_index.core.llms import ChatMessage
from llama_index.llms.openai import OpenAI as LlamaIndexOpenAI


def main() -> None:
    url = sys.argv[1]
    common = {"model": "gpt-4o-mini", "base_url": url, "api_key": "unused", "temperature": 0, "max_tokens": 12}
    chat = ChatOpenAI(**common, seed=1)
    found = {
        "langchain": chat.invoke("the sea").content,
        "langchain_usage": chat.invoke("the sea").usage_metadata["output_tokens"],
        "langchain_stream": "".join(piece.content for piece in chat.stream("the sea")),
        "langchain_batch": [m.content for m in chat.batch(["the sea", "the sun"])],
        "langchain_text": OpenAI(**common).invoke("the sea"),
    }
    index = LlamaIndexOpenAI(model="gpt-4o-mini", api_base=url, api_key="unused", temperature=0, max_tokens=12)
    found["llamaindex"] = index.chat([ChatMessage(role="user", content="the sea")]).message.content
    pieces = index.stream_chat([ChatMessage(role="user", content="the sea")])
    found["llamaindex_stream"] = "".join(piece.delta or "" for piece in pieces)
    found["llamaindex_complete"] = index.complete("the sea").text
    print(json.dumps(found))


if __name__ == "__main__":
    main()
