"""What the scripted model `scripted/demo` says and does.

A scenario (see `scenario`) that shows reading, a plan, an edit and a command with their approvals. It says of itself
that it is a script. The project it speaks of is made by `server.demo`.
"""

from __future__ import annotations

from typing import Final

DEMO: Final = """pace: 12ms
think: This is a script, not a model. It shows what an agent does here.
say: I am a **scripted demo**: no model is behind these words, but the tools, the approvals and the sandbox are real.
  Let me look at the project first.
tool: plan {"steps": [{"content": "Read the code", "status": "in_progress"}, {"content": "Fix the greeting"},
  {"content": "Run the test"}]}
tool: read {"path": "greet.py"}
---
pace: 12ms
say: There is a typo in the greeting. I will fix it; you decide.
tool: edit {"path": "greet.py", "old_text": "Helo, ", "new_text": "Hello, "}
---
pace: 12ms
say: Now the test. Commands run in a sandbox: they see this folder, and no network.
tool: shell {"command": "python3 test_greet.py"}
---
tool: plan {"steps": [{"content": "Read the code", "status": "completed"},
  {"content": "Fix the greeting", "status": "completed"}, {"content": "Run the test", "status": "completed"}]}
---
pace: 12ms
say: Done. To talk to a real model, start a new session: the local one needs no account. In short:

  | step | result |
  |---|---|
  | read | `greet.py` |
  | edit | one line, after your approval |
  | test | see the card above |
---
pace: 12ms
say: This was the scripted demo; it has nothing more to say. Start a new session to talk to a real model.
"""
