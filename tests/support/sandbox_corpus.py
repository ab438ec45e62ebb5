"""What a confined command tries to do and must not, and what it does and must.

In: nothing. Out: two tables of shell scripts. They run in the workspace of a `Site` (tests/support/sandbox_site.py) and
know its places by environment variables: OUT (a folder outside), MK (MAKAI_HOME), VICTIM (the process id of a server
with a secret in its environment), TCP, UDP (ports that listen), ABSTRACT (an abstract unix socket).

An attack prints PWNED when it got through; some are noticed from outside only (`Site.damage`).
"""

from __future__ import annotations

from typing import NamedTuple


class Attack(NamedTuple):
    """`proven`: it is first run without a sandbox, where it must get through. Not so for what would harm the machine,
    or works only on some."""

    script: str
    proven: bool = True
    only: str = ""
    """The one backend that can stop it; the other one says in `not_confined` that it does not."""


def _python(code: str) -> str:
    return f"python3 - <<'END'\nimport os, socket, ctypes\n{code}\nprint('PWNED')\nEND\n"


def _call(number: int, arguments: str) -> str:
    """A system call by its number gets through when it is not refused."""
    return _python(f"assert ctypes.CDLL(None).syscall({number}, {arguments}) >= 0")


ATTACKS: dict[str, Attack] = {
    # files outside of the workspace
    "write into the root folder": Attack("echo x >/makai-was-here && echo PWNED", proven=False),
    "write into /etc": Attack("echo x >/etc/makai-was-here && echo PWNED", proven=False),
    "write into /usr/local/bin": Attack("echo x >/usr/local/bin/makai-was-here && echo PWNED", proven=False),
    "new file outside": Attack("echo x >$OUT/new && echo PWNED"),
    "append outside": Attack("echo x >>$OUT/file && echo PWNED"),
    "truncate outside": Attack("truncate -s 0 $OUT/file && echo PWNED"),
    "truncate(2) outside": Attack(_python("os.truncate(os.environ['OUT'] + '/file', 1)")),
    "remove outside": Attack("rm -f $OUT/file && echo PWNED"),
    "rename outside": Attack("mv $OUT/file $OUT/moved && echo PWNED"),
    "move a file out": Attack("echo x >src/x; mv -f src/x $OUT/file && echo PWNED"),
    "new folder outside": Attack("mkdir $OUT/folder && echo PWNED"),
    "new link outside": Attack("ln -s /etc $OUT/link && echo PWNED"),
    "chmod outside": Attack("chmod 777 $OUT/file && echo PWNED", only="bubblewrap"),
    "touch outside": Attack("touch -d 1999-01-01 $OUT/file && echo PWNED", only="bubblewrap"),
    "through a link in the workspace": Attack("ln -s $OUT/file src/link && echo x >src/link && echo PWNED"),
    "through a link to a folder": Attack("ln -s $OUT src/link && echo x >src/link/new && echo PWNED"),
    "through a hard link": Attack("ln $OUT/file src/link && echo x >>src/link && echo PWNED"),
    "through ..": Attack("echo x >../outside/new && echo PWNED"),
    "through /proc/self/root": Attack("echo x >/proc/self/root$OUT/new && echo PWNED"),
    "through /proc/self/cwd": Attack("echo x >/proc/self/cwd/../outside/new && echo PWNED"),
    "the user's shell startup": Attack("echo evil >>$HOME/.bashrc && echo PWNED"),
    "the /tmp of others": Attack("ls /tmp | grep -q makai-of-others && echo PWNED"),
    "shared memory of others": Attack("echo x >/dev/shm/makai-was-here"),
    # what makes later commands run code
    "new git hook": Attack("echo evil >.git/hooks/pre-commit && echo PWNED"),
    "existing git hook": Attack("echo evil >>.git/hooks/post-merge && echo PWNED"),
    "git config": Attack("git config core.fsmonitor evil && echo PWNED"),
    "append to .git/config": Attack("echo evil >>.git/config && echo PWNED"),
    "rename onto .git/config": Attack("cp .git/config src/c; mv -f src/c .git/config && echo PWNED"),
    "hard link to .git/config": Attack("ln .git/config src/c && echo evil >>src/c && echo PWNED"),
    "another .git": Attack("mv .git .git2 && mkdir -p .git/hooks && echo evil >.git/hooks/pre-commit && echo PWNED"),
    "other hooks": Attack("mv .git/hooks .git/h && mkdir .git/hooks && echo PWNED"),
    "another place for all of git": Attack("echo ../evil >.git/commondir && echo PWNED"),
    "hooks of a submodule": Attack("mkdir -p .git/modules/x/hooks && echo evil >.git/modules/x/hooks/h"),
    "makai's own settings": Attack("echo evil >>.makai/config.toml && echo PWNED"),
    "new file in .makai": Attack("echo evil >.makai/new && echo PWNED"),
    "remove .makai": Attack("rm -rf .makai; [ -e .makai/config.toml ] || echo PWNED"),
    "replace .makai by a link": Attack("mv .makai .m && ln -s src .makai && echo PWNED"),
    # New files are moved away when a command has ended: `Site.damage` looks for them.
    "missing protected file": Attack("echo evil >.mcp.json"),
    "missing protected folder": Attack("mkdir -p .claude && echo evil >.claude/settings.json"),
    "link for a missing folder": Attack("ln -s src .claude"),
    "move onto a missing folder": Attack("mkdir x && touch x/settings.json && mv -T x .claude"),
    # network
    "/dev/tcp": Attack("exec 3<>/dev/tcp/127.0.0.1/$TCP && echo PWNED"),
    "TCP by IPv6": Attack(_python("socket.create_connection(('::ffff:127.0.0.1', int(os.environ['TCP'])), 3)")),
    "curl": Attack("curl -s -m 3 http://127.0.0.1:$TCP/; [ $? = 52 -o $? = 28 ] && echo PWNED", proven=False),
    "UDP": Attack(_python("socket.socket(2, 2).sendto(b'x', ('127.0.0.1', int(os.environ['UDP']))); raise SystemExit")),
    "DNS": Attack("getent hosts example.com && echo PWNED", proven=False),
    "raw packets": Attack(_python("socket.socket(17, 3, 0x0300).bind(('lo', 0)); raise SystemExit"), proven=False),
    "unix socket outside": Attack(_python("socket.socket(1).connect(os.environ['OUT'] + '/service.sock')")),
    "abstract unix socket": Attack(_python("socket.socket(1).connect('\\0' + os.environ['ABSTRACT'])")),
    "unix datagrams": Attack(
        _python("a, b = socket.socketpair(1, 2)\na.sendto(b'x', os.environ['OUT'] + '/datagrams.sock')")
    ),
    # other processes
    "trace the server": Attack(
        _python(
            "victim = int(os.environ['VICTIM'])\n"
            "assert ctypes.CDLL(None).ptrace(0x4206, victim, None, None) == 0"  # PTRACE_SEIZE: it goes on running
        )
    ),
    "memory of the server": Attack(_python("open(f\"/proc/{os.environ['VICTIM']}/mem\", 'rb')")),
    "kill the server": Attack("kill -9 $VICTIM && echo PWNED"),
    "stop the server": Attack("kill -STOP $VICTIM && echo PWNED"),
    # more rights
    "mount": Attack("mount -t tmpfs none $OUT && echo PWNED", proven=False),
    "bind mount": Attack("mount --bind src .makai && echo PWNED", proven=False),
    "mount again, writable": Attack("mount -o remount,rw / && echo PWNED", proven=False),
    "lift the covers": Attack("umount -l $MK; umount -l .git/hooks && echo PWNED", proven=False),
    "own namespaces": Attack(
        "unshare -Urm sh -c 'umount -l $MK; mount -o remount,rw,bind $OUT; echo x >$OUT/new' && echo PWNED",
        proven=False,
    ),
    "another user": Attack(_python("os.setuid(65534)"), proven=False),
    "give a file away": Attack("chown 65534 src/main.py && echo PWNED", proven=False),
    "capabilities": Attack("grep -q 'CapEff:.*[1-9a-f]' /proc/self/status && echo PWNED", proven=False),
    "setuid programs": Attack("grep -q 'NoNewPrivs:.*0' /proc/self/status && echo PWNED"),
    "device node": Attack("mknod src/disk b 254 0 && head -c 1 src/disk && echo PWNED", proven=False),
    "raw disk": Attack(
        "for disk in /dev/[vs]d* /dev/nvme* /dev/mem /dev/kmsg; do (: <$disk) && echo PWNED; done", proven=False
    ),
    "the kernel's core_pattern": Attack("(: >>/proc/sys/kernel/core_pattern) && echo PWNED", proven=False),
    # the kernel's own interfaces; numbers of x86_64
    "no filter": Attack("grep -q 'Seccomp:.*0' /proc/self/status && echo PWNED", proven=False),
    "the session's keyring": Attack(_call(250, "0, -3, 1"), proven=False),  # KEYCTL_GET_KEYRING_ID
    "a new key": Attack(_call(248, "b'user', b'makai', b'x', 1, -3"), proven=False),
    "io_uring": Attack(_call(425, "4, ctypes.create_string_buffer(120)"), proven=False),
    "bpf": Attack(_call(321, "0, ctypes.create_string_buffer(120), 120"), proven=False),
    "userfaultfd": Attack(_call(323, "1"), proven=False),
    "performance counters": Attack(_call(298, "ctypes.create_string_buffer(120), 0, -1, -1, 0"), proven=False),
    "a descriptor of another process": Attack(
        _call(438, "os.pidfd_open(int(os.environ['VICTIM'])), 1, 0"), proven=False
    ),
    "a user namespace by clone": Attack(_call(56, "0x10000011, None, None, None, None"), proven=False),
    "sockets of the crypto interface": Attack(_python("socket.socket(38, 5)"), proven=False),
    "sockets to the host": Attack(_python("socket.socket(40, 1)"), proven=False),
    "another control group": Attack(
        "for procs in $(find /sys/fs/cgroup -name cgroup.procs); do (: >>$procs) && echo PWNED; done", proven=False
    ),
}

SELF_APPROVAL: dict[str, Attack] = {
    "credentials": Attack("cat $MK/auth.json"),
    "the server's token": Attack("cat $MK/server-token"),
    "the database": Attack("cat $MK/makai.db"),
    "names in MAKAI_HOME": Attack("ls $MK | grep -q auth.json && echo PWNED"),
    "through a link": Attack("ln -s $MK/auth.json src/a && cat src/a"),
    "through a hard link": Attack("ln $MK/auth.json src/a && cat src/a"),
    "through /proc/self/root": Attack("cat /proc/self/root$MK/auth.json"),
    "through the server's root": Attack("cat /proc/$VICTIM/root$MK/auth.json"),
    "through the server's folder": Attack("cat /proc/$VICTIM/cwd/auth.json"),
    "through the server's files": Attack("cat /proc/$VICTIM/fd/*"),
    "the server's environment": Attack("tr '\\0' '\\n' </proc/$VICTIM/environ"),
    "every environment": Attack("cat /proc/[0-9]*/environ"),
    "the socket": Attack(_python("socket.socket(1).connect(os.environ['MK'] + '/makai.sock')")),
    "the API": Attack("exec 3<>/dev/tcp/127.0.0.1/$TCP && echo approve >&3 && echo PWNED"),
    "a copy": Attack("cp -r $MK src/copy; cat src/copy/*"),
    "an archive": Attack("tar cf - $MK"),
    "search": Attack(
        "find $MK/.. / -xdev -maxdepth 4 -name auth.json -path '*makai-home*' -exec cat {} +", proven=False
    ),
    "another credential in place": Attack("echo evil >$MK/auth.json && echo PWNED"),
    "another MAKAI_HOME in place": Attack("mv $MK $MK.old && mkdir $MK && echo PWNED"),
    "the user's key": Attack("cat $HOME/.ssh/id_ed25519"),
    "the user's other logins": Attack("cat $HOME/.aws/credentials $HOME/.netrc"),
}
"""Success is also when the secret of the site is seen in the output."""


class Work(NamedTuple):
    """A command that must end with 0 and print `output`."""

    script: str
    output: str = ""
    only: str = ""
    """The one backend that can do it; the other one says in `not_confined` that it does not."""


WORK: dict[str, Work] = {
    "git status": Work("git status --short", "?? untracked"),
    "git log": Work("git log --oneline", "first"),
    "git diff": Work("echo x >>src/main.py; git diff --stat", "src/main.py"),
    "python": Work("python3 -c 'import json; print(json.dumps(6 * 7))'", "42"),
    "python tests": Work("python3 -m unittest -v src/test_main.py 2>&1", "OK"),
    "python packages": Work("python3 -m venv --without-pip src/env && src/env/bin/python -c 'print(1)'", "1"),
    "asyncio": Work("python3 -c 'import asyncio; asyncio.run(asyncio.sleep(0)); print(\"done\")'", "done"),
    "a server of its own": Work(
        'python3 -c \'import socket; s = socket.create_server(("127.0.0.1", 0)); '
        'socket.create_connection(s.getsockname()); print("met")\'',
        "met",
        only="bubblewrap",
    ),
    "threads and pairs of sockets": Work(
        "python3 -c 'import multiprocessing, threading; a, b = multiprocessing.Pipe(); "
        'threading.Thread(target=a.send, args=["sent"]).start(); print(b.recv())\'',
        "sent",
    ),
    "subprocesses": Work('python3 -c \'import subprocess; subprocess.run(["echo", "child"])\'', "child"),
    "multiprocessing": Work(
        "python3 -c 'import multiprocessing as m; print(m.Pool(2).map(abs, [-1, -2]))'", "[1, 2]", only="bubblewrap"
    ),
    "a server on loopback": Work(
        'python3 -c \'import socket as s; l = s.create_server(("127.0.0.1", 0)); '
        's.create_connection(l.getsockname()); print("met")\'',
        "met",
        only="bubblewrap",
    ),
    "compiler": Work("cd src && cc -o hello hello.c && ./hello", "hello"),
    "make": Work("make -s -C src hello && src/hello", "hello"),
    "sed in place": Work("sed -i s/answer/question/ src/main.py && cat src/main.py", "question"),
    "tar": Work(
        "tar czf src/a.tgz src/main.py && mkdir src/x && tar xzf src/a.tgz -C src/x && ls src/x/src", "main.py"
    ),
    "mktemp": Work("f=$(mktemp) && echo here >$f && cat $f && rm $f", "here"),
    "/tmp itself": Work("echo here >/tmp/x && cat /tmp/x", "here", only="bubblewrap"),
    "heredoc": Work("cat >src/new.txt <<END\nsome $((1 + 1)) lines\nEND\ncat src/new.txt", "some 2 lines"),
    "new file beside .git": Work("echo here >new && cat new", "here", only="bubblewrap"),
    "existing file beside .git": Work("echo here >untracked && cat untracked", "here"),
    "pipes": Work("seq 1000 | sort -rn | head -1", "1000"),
    "process substitution": Work("diff <(echo a) <(echo a) && echo same", "same"),
    "find and xargs": Work("find . -name '*.py' -print0 | xargs -0 grep -l answer", "src/main.py"),
    "folders, copies, links": Work(
        "mkdir -p src/a/b && cp src/main.py src/a && mv src/a/main.py src/a/b/m && ln src/a/b/m src/h && ln -s h src/s "
        "&& cat src/s && rm -r src/a",
        "answer",
    ),
    "background jobs": Work("(sleep 0.05; echo late) & wait; echo end", "late"),
    "own processes": Work("sleep 60 & kill $! && echo killed", "killed"),
    "devices": Work("head -c 8 /dev/urandom | wc -c; echo x >/dev/null; head -c 1 /dev/zero | wc -c", "8"),
    "/proc/self": Work("grep Name /proc/self/status", "grep"),
    "output through /dev/stderr": Work("echo seen >/dev/stderr", "seen"),
    "read the system": Work("cat /etc/passwd && ls /usr/bin", "root"),
    "scripts": Work("printf '#!/bin/sh\\necho ran\\n' >src/s && chmod +x src/s && src/s", "ran"),
    "node": Work("command -v node >/dev/null || { echo 42; exit; }; node -e 'console.log(6 * 7)'", "42"),
}
