"""Commands for the proof that what is allowed has no other effect: plain uses of many programs, and proven attacks."""

from __future__ import annotations

LOOKING = """
cat: a.txt | -n a.txt | -A a.txt b.txt | --number a.txt | -- a.txt
tac: a.txt | -s a a.txt | -b a.txt
nl: a.txt | -ba a.txt | -w 3 a.txt | --number-format=rz a.txt
cut: -d, -f1 data.csv | -c1-3 a.txt | -b 1 a.txt | --fields=1 -d , data.csv | -s -d, -f2 data.csv
paste: a.txt b.txt | -s a.txt | -d, a.txt b.txt
tr: a b | -d a | -s a | -c a-z x
comm: a.txt b.txt | -12 a.txt b.txt | --nocheck-order -3 a.txt b.txt
join: a.txt b.txt | -t, data.csv data.csv | -1 1 -2 1 a.txt b.txt
fold: -w 10 a.txt | -sw5 a.txt
fmt: -w 20 a.txt | -20 a.txt
expand: -t 4 a.txt | -i a.txt
unexpand: -a a.txt
pr: -t a.txt | -m -t a.txt b.txt
seq: 5 | -w 1 10 | -s , 1 2 9
basename: /x/a.txt | -s .txt a.txt | -a x/a y/b
dirname: /x/a.txt | x/y
realpath: a.txt | -m x/y | --relative-to=. src
readlink: -f a.txt | -m x
pwd: | -P
ls: | -la | -1 src | -R | --color=never -F | -lt --time-style=iso | -a -I x | -d src a.txt | --sort=size -r
dir: | -a
stat: a.txt | -c %s a.txt | -f . | --format=%n a.txt | -t a.txt
df: | -h . | -T . | --output=size .
du: -sh . | -d 1 | -a src | --apparent-size -b a.txt
md5sum: a.txt | --tag a.txt
sha1sum: a.txt
sha256sum: a.txt b.txt | -b a.txt
cksum: a.txt
b2sum: -l 8 a.txt
sum: a.txt | -s a.txt
od: -c a.txt | -An -tx1 -N 4 a.txt | -j 1 a.txt
wc: a.txt | -l a.txt b.txt | -cw a.txt | --lines a.txt
head: a.txt | -2 a.txt | -n 1 a.txt b.txt | -c 3 a.txt | --lines=1 a.txt | -qn1 a.txt b.txt
tail: a.txt | -2 a.txt | -n +2 a.txt | -c 3 a.txt
base64: a.txt | -w 0 a.txt | -d b.txt
base32: a.txt
sort: a.txt | -u a.txt | -k2 -t, data.csv | -rn a.txt b.txt | -S 1M a.txt | --parallel=1 a.txt | -c a.txt | -V -z a.txt
uniq: a.txt | -c a.txt | -d a.txt | -f1 a.txt | --count a.txt
date: | +%s | -u +%F | -d yesterday | -r a.txt | -I | --rfc-3339=date
shuf: -n 1 a.txt | -e a b | -i 1-3
numfmt: --to=si 1000 | --from=iec 1K
id: | -u | -Gn
uname: -a | -r
nproc: | --all
whoami:
arch:
groups:
grep: a a.txt | -rn main src | -c a a.txt | -i A a.txt b.txt | -E 'a|b' a.txt | -lr a . | -n -A1 -B 1 a a.txt
 | -e a -e b a.txt | --include=*.py -rn def . | -oP a a.txt | -f list.txt a.txt | -v -- a a.txt | -3 a a.txt
egrep: a a.txt | -n 'a|b' a.txt
fgrep: a a.txt
rg: main | -n def src | --files | -l a . | -tpy def | -g '*.py' def | --json def src | -c a a.txt | -A2 -i DEF
 | --hidden foo | --sort=path a | -e a -e b . | --no-config a | -uu foo | --type-list | -m 1 a a.txt
fd: main | -e py | -H . src | -t f | -d 1 | -a main | -0 main | -E src
fdfind: -t d
find: . -name '*.py' | . -type f -size -1k | src -maxdepth 1 -print0 | . -newer a.txt | . -printf '%p\\n' | . -ls
 | . -not -path './.git/*' -prune -o -print | . '(' -name a -o -name b ')' | -name a.txt | . -empty | . -perm -u+x
tree: | -L 1 | -a src | -I x | -P '*.py' --prune | -J -L 2 | -fi | --dirsfirst -d
sed: -n 1,2p a.txt | s/a/b/g a.txt | -n '$p' a.txt | -E 's/(a)/x/' a.txt | '/a/d' a.txt | -n -e 2p a.txt | 2q a.txt
 | 's/a/b/;s/b/c/' a.txt | -s -n 1p a.txt b.txt | -n '/a/,/b/p' a.txt
awk: '{print $1}' a.txt | -F, '{print $2}' data.csv | 'NR==1' a.txt | 'END{print NR}' a.txt | -v x=1 '{print x}' a.txt
 | 'length($0) >= 1 {n++} END {print n}' a.txt | '{gsub(/a/,"b"); print toupper($0)}' a.txt
diff: a.txt b.txt | -u a.txt b.txt | -q a.txt b.txt | -y -W 40 a.txt b.txt | --color=never a.txt b.txt | -U1 a.txt b.txt
sdiff: -s a.txt b.txt | -w 40 a.txt b.txt
diff3: a.txt b.txt a.txt | -m a.txt b.txt a.txt
cmp: a.txt b.txt | -l a.txt b.txt | -s a.txt b.txt
file: a.txt | -b src | --mime-type a.txt | -i a.tar
jq: . a.json | -r .a.b a.json | -c '.a|keys' a.json | --arg x 1 '$x' a.json | -n '1+1' | -e .a a.json
xxd: a.txt | -l 2 a.txt | -p a.txt | -c 4 -g 1 a.txt
hexdump: -C a.txt | -n 2 a.txt
column: -t -s, data.csv | -t a.txt
rev: a.txt
strings: a.tar | -n 3 a.tar
echo: | -n a | -e 'a\\tb' | '$(touch p)' | --help
printf: '%s\\n' a b | '%d' 5 | '%5.2f' 1.5 | -- '%s' a | '%%n'
true:
test: -f a.txt | a = a | -d src -a -e a.txt | 1 -lt 2
type: ls | -a cat
command: -v ls | -V cat
which: ls | -a cat
hostname: | -s | -f
uptime: | -p
free: | -m
git: status | status -sb | status --porcelain | log | log --oneline -3 | log -p -1 | log --stat | log -S foo --oneline
 | log --graph --all --oneline | log --format=%H -n 1 | log --author=a --since=1.day | log -- a.txt | log main..victim
 | show | show HEAD:a.txt | show --stat v1 | show --no-textconv HEAD | diff | diff --stat | diff HEAD~1 -- a.txt
 | diff --cached | diff --name-only HEAD~1 | diff -U1 -w | diff --word-diff | blame a.txt
 | blame -L 1,2 -w a.txt | grep -n foo
 | grep -il FOO | grep -c a -- a.txt | grep -e foo --and -e d | ls-files | ls-files -m | ls-files -o --exclude-standard
 | ls-tree HEAD | ls-tree -r --name-only HEAD | cat-file -p HEAD | cat-file -t HEAD | rev-parse HEAD
 | rev-parse --show-toplevel | rev-parse --abbrev-ref HEAD | rev-list --count HEAD | merge-base main victim | branch
 | branch -a | branch --list 'v*' | branch -vv | branch --show-current | branch --contains HEAD | tag | tag -l 'v*'
 | remote -v | remote get-url origin
 | config --local user.name | config --local --get user.email | config -l --local
 | describe --tags --always | shortlog -sn HEAD
 | reflog | reflog -2 | stash list | worktree list | for-each-ref --format='%(refname)' | show-ref | count-objects -v
 | check-ignore x | name-rev HEAD | --no-pager log -1 | version | diff-tree HEAD | describe --all | show-branch
"""
"""A program and its argument lists, separated by bars."""

RULES = """
less: a.txt | -N a.txt
more: a.txt
sqlite3: -safe -readonly a.db 'select * from t' | -readonly -safe -json a.db 'select 1'
 | -safe -readonly a.db 'select edit(1)'
tar: -tf a.tar | tvf a.tar
unzip: -l a.zip | -p a.zip a.txt | -t a.zip
zipinfo: -1 a.zip | -l a.zip
printenv: PATH | -0
ss: -tln | -a
man: -w ls | -f ls
touch: new | -c a.txt | -d yesterday new2
mkdir: made | -p made/x/y
rmdir: made/x/y
cp: a.txt copy.txt | -v a.txt made | -t made a.txt b.txt | -p a.txt made/c
mv: copy.txt moved.txt | -n moved.txt made | -t made new2
ln: -s a.txt link | -f a.txt hard | -sfr a.txt made/link
tee: out.txt | -a out.txt
chmod: +x out.txt | 644 out.txt
truncate: -s 3 out.txt
rm: out.txt | -f link | -r made
git: add a.txt | commit -qm third
"""
"""The same for programs that a rule allows; those that write do so in this order."""

ATTACKS = {
    "git grep:*": ("git grep -lO'touch p;' foo", "git grep -nO./run foo", "git grep --op=./run foo"),
    "git branch:*": ("git branch --list --no-list -D victim", "git branch made"),
    "git log:*": ("git log --output=out -1",),
    "git config:*": ("git config core.fsmonitor ./run",),
    "tree:*": ("tree -Lo 1 out", "tree -aIo x out", "tree -Po x out"),
    "uniq:*": ("uniq a.txt -- -out", "uniq a.txt out"),
    "fd:*": ("fd -l main", "fd -x ./run", "fd main -X ./run"),
    "rg:*": ("rg --pre=./run foo", "rg --pre ./run foo"),
    "sort:*": ("sort a.txt --out=out", "sort -uoout a.txt", "sort a.txt -o out"),
    "sed:*": ("sed 's/a/touch p/e' a.txt", "sed -i s/a/b/ a.txt", "sed 'w out' a.txt", "sed --in-pl p a.txt"),
    "awk:*": (
        "awk 'BEGIN{system(\"touch p\")}'",
        "awk '{print > \"out\"}' a.txt",
        "awk '{print | \"cat >out\"}' a.txt",
    ),
    "find:*": ("find . -name a.txt -exec ./run \\;", "find . -fprint out", "find . -name a.txt -delete"),
    "xxd:*": ("xxd a.txt out", "xxd -r a.txt out", "xxd a.txt -lout"),
    "diff:*": ("diff -l a.txt b.txt",),
    "sdiff:*": ("sdiff -o out a.txt b.txt",),
    "date:*": ("date 01010000",),
    "cp:*": ("cp a.txt .envrc", "cp -r sub made2", "cp -t .git a.txt"),
    "tar:*": ("tar -xf a.tar", "tar -tf a.tar --checkpoint=1 --checkpoint-action=exec=./run", "tar -tf a.tar -I ./run"),
    "sqlite3:*": ("sqlite3 a.db '.shell touch p'", "sqlite3 a.db \"select writefile('out','x')\""),
    "unzip:*": ("unzip -o a.zip -d out",),
    "command:*": ("command ./run",),
    "env:*": ("env ./run",),
    "xargs:*": ("xargs ./run",),
    "make:*": ("make --eval 'x:;./run'",),
}
"""By the rule under which they must be asked about. Each has an effect, so it shows that effects are seen."""


def commands(table: str) -> list[str]:
    joined = table.strip().replace("\n |", " |")
    rows = (line.partition(":") for line in joined.splitlines())
    return [f"{name} {words.strip()}".strip() for name, _, rest in rows for words in rest.split(" | ")]
