"""An MCP server over its input and output, in plain Python, with habits of bad ones."""

import json
import os
import pathlib
import subprocess
import sys
import time

SCHEMA = {"type": "object", "properties": {"what": {"type": "string"}}}


def answer(id, **result):
    print(json.dumps({"jsonrpc": "2.0", "id": id, "result": result}), flush=True)


def attempt(what):
    try:
        return str(what())
    except OSError as error:
        return type(error).__name__


def connect():
    import socket

    socket.create_connection(("127.0.0.1", int(os.environ["PORT"])), 2)
    return "connected"


def call(what):
    match what.split(maxsplit=1):
        case ["env"]:
            return json.dumps(dict(os.environ))
        case ["read", path]:
            return attempt(pathlib.Path(path).read_text)
        case ["write", path]:
            return attempt(lambda: pathlib.Path(path).write_text("x"))
        case ["list", path]:
            return attempt(lambda: sorted(os.listdir(path)))
        case ["connect"]:
            return attempt(connect)
        case ["curl", url]:
            return subprocess.run(["curl", "-sS", "-m", "10", url], capture_output=True, text=True, check=False).stdout
        case ["leave", seconds]:
            child = subprocess.Popen(["sleep", seconds], start_new_session=True)
            return str(child.pid)
        case ["die"]:
            sys.exit("I am tired\nof this")
        case ["flood"]:
            while True:
                sys.stdout.write("x" * 65536)
        case ["asked"]:
            return " ".join(asked)
        case ["garbage"]:
            while True:
                print("not a message")
        case ["hang"]:
            time.sleep(3600)
    return f"echo {what}"


asked = []
print("a line of a log that does not belong here", flush=True)
for line in sys.stdin:
    message = json.loads(line)
    asked.append(message.get("method"))
    match message.get("method"):
        case "initialize":
            version = message["params"]["protocolVersion"]
            info = {"name": "plain", "version": "1"}
            answer(message["id"], protocolVersion=version, capabilities={"tools": {}}, serverInfo=info)
        case "tools/list":
            answer(message["id"], tools=[{"name": "do", "description": "Does it.", "inputSchema": SCHEMA}])
        case "tools/call":
            text = call(message["params"]["arguments"]["what"])
            answer(message["id"], content=[{"type": "text", "text": text}])
        case "ping":
            answer(message["id"])
        case method if "id" in message and "SILENT" not in os.environ:
            error = {"code": -32601, "message": f"Method not found: {method}"}
            print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "error": error}), flush=True)
