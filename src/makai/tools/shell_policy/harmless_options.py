"""The options of programs that are known to be harmless, with the version whose manual and help were read.

A program is added by a row, an option by a word; what is missing is asked about. Left out on purpose are options that
run something (`rg --pre`), write (`sort -o`), read names of further files (`wc --files0-from`) or never end. Options
of `write` programs do no more than the program's name says. GTFOBins was searched for every program here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from makai.tools.shell_policy import option_checks as checks
from makai.tools.shell_policy.option_parsing import OptionList


def _gnu(rows: Mapping[str, OptionList]) -> dict[str, OptionList]:
    """Programs whose `--help` and `--version` print and end."""
    return {
        name: msgspec.structs.replace(usage, options=f"{usage.options} --help --version")
        for name, usage in rows.items()
    }


def _same(names: str, usage: OptionList) -> dict[str, OptionList]:
    return dict.fromkeys(names.split(), usage)


_LS: Final = OptionList(
    options="-aAbBcCdDfgGhHiklLmnNopqQrRsStuUvxXZ1F -I:T:w: --all --almost-all --author --escape --block-size= "
    "--ignore-backups --color? --directory --dired --classify? --file-type --format= --full-time "
    "--group-directories-first --no-group --human-readable --si --dereference-command-line "
    "--dereference-command-line-symlink-to-dir --hide= --hyperlink? --indicator-style= --inode --ignore= --kibibytes "
    "--dereference --numeric-uid-gid --literal --hide-control-chars --show-control-chars --quote-name "
    "--quoting-style= --reverse --recursive --size --sort= --time= --time-style= --tabsize= --width= --context --zero",
    looks=True,
    names_only=True,
    recursive="R recursive",
    inert=True,
)
_SUMS: Final = OptionList(
    options="-btz -l: --binary --tag --text --zero --length=", looks=True, inert=True
)  # without --check, which reads the names of files from a file
_BASE: Final = OptionList(
    options="-di -w: --decode --ignore-garbage --wrap=", looks=True, max_operands=1, options_first=True
)

COREUTILS: Final[Mapping[str, OptionList]] = _gnu(  # GNU coreutils 9.1
    {
        "cat": OptionList(
            options="-AbeEnstTuv --show-all --number-nonblank --show-ends --number --squeeze-blank --show-tabs "
            "--show-nonprinting",
            looks=True,
            inert=True,
        ),
        "tac": OptionList(options="-br -s: --before --regex --separator=", looks=True, inert=True),
        "nl": OptionList(
            options="-p -b:d:f:h:i:l:n:s:v:w: --body-numbering= --section-delimiter= --footer-numbering= "
            "--header-numbering= --line-increment= --join-blank-lines= --number-format= --no-renumber "
            "--number-separator= --starting-line-number= --number-width=",
            looks=True,
            inert=True,
        ),
        "cut": OptionList(
            options="-nsz -b:c:d:f: --bytes= --characters= --delimiter= --fields= --complement --only-delimited "
            "--output-delimiter= --zero-terminated",
            looks=True,
            inert=True,
        ),
        "paste": OptionList(options="-sz -d: --delimiters= --serial --zero-terminated", looks=True, inert=True),
        "tr": OptionList(
            options="-cCdst --complement --delete --squeeze-repeats --truncate-set1", operands="text", looks=True
        ),
        "comm": OptionList(
            options="-123z --check-order --nocheck-order --output-delimiter= --total --zero-terminated", looks=True
        ),
        "join": OptionList(
            options="-iz -a:e:j:o:t:v:1:2: --ignore-case --check-order --nocheck-order --header --zero-terminated",
            looks=True,
        ),
        "fold": OptionList(options="-bs -w: --bytes --spaces --width=", looks=True, inert=True),
        "fmt": OptionList(
            options="-cstu# -p:w:g: --crown-margin --prefix= --split-only --tagged-paragraph --uniform-spacing "
            "--width= --goal=",
            looks=True,
            inert=True,
        ),
        "expand": OptionList(options="-i -t: --initial --tabs=", looks=True, inert=True),
        "unexpand": OptionList(options="-a -t: --all --first-only --tabs=", looks=True, inert=True),
        "pr": OptionList(options="-acdfFmrtTv# -h:l:o:w:W: --across --double-space --merge --width=", looks=True),
        "seq": OptionList(
            options="-w# -f:s: --format= --separator= --equal-width", operands="text", looks=True, names_only=True
        ),
        "basename": OptionList(
            options="-az -s: --multiple --suffix= --zero", operands="text", looks=True, names_only=True, inert=True
        ),
        "dirname": OptionList(options="-z --zero", operands="text", looks=True, names_only=True, inert=True),
        "realpath": OptionList(
            options="-emLPqsz --canonicalize-existing --canonicalize-missing --logical --physical --quiet "
            "--relative-to< --relative-base< --strip --no-symlinks --zero",
            looks=True,
            names_only=True,
            inert=True,
        ),
        "readlink": OptionList(
            options="-femnqsvz --canonicalize --canonicalize-existing --canonicalize-missing --no-newline --quiet "
            "--silent --verbose --zero",
            looks=True,
            names_only=True,
            inert=True,
        ),
        "pwd": OptionList(options="-LP --logical --physical", operands="text", looks=True, names_only=True),
        **_same("ls dir vdir", _LS),
        "stat": OptionList(
            options="-Lft -c: --dereference --file-system --cached= --format= --printf= --terse",
            looks=True,
            names_only=True,
            inert=True,
        ),
        "df": OptionList(
            options="-ahHiklPTv -B:t:x: --all --block-size= --human-readable --si --inodes --local --no-sync --output? "
            "--portability --total --type= --print-type --exclude-type=",
            looks=True,
            names_only=True,
        ),
        "du": OptionList(
            options="-0abcDHhkLlmPSsx -B:d:t: --null --all --apparent-size --block-size= --bytes --total "
            "--dereference-args --max-depth= --human-readable --inodes --dereference --count-links --no-dereference "
            "--separate-dirs --si --summarize --threshold= --time? --time-style= --exclude= --one-file-system",
            looks=True,
            asks_to_look="L dereference",
            names_only=True,
            recursive="*",
        ),
        **_same("cksum md5sum sha1sum sha224sum sha256sum sha384sum sha512sum b2sum", _SUMS),
        "sum": OptionList(options="-rs --sysv", looks=True, inert=True),
        "od": OptionList(
            options="-abcdfhilosxv -A:j:N:S:t:w? --address-radix= --endian= --skip-bytes= --read-bytes= --strings? "
            "--format= --output-duplicates --width?",
            looks=True,
            inert=True,
        ),
        "wc": OptionList(options="-cmlLw --bytes --chars --lines --max-line-length --words --total=", looks=True),
        "head": OptionList(
            options="-qvz# -c:n: --bytes= --lines= --quiet --silent --verbose --zero-terminated", looks=True, inert=True
        ),
        "tail": OptionList(
            options="-qvzfF# -c:n:s: --bytes= --lines= --quiet --silent --verbose --zero-terminated --follow? --retry "
            "--pid= --sleep-interval=",
            looks=True,
            asks_to_look="f F follow retry pid",  # these do not end
        ),
        **_same("base64 base32", _BASE),
        "sort": OptionList(
            options="-bCcdfghiMmnRrsuVz -k:t:S: --ignore-leading-blanks --dictionary-order --ignore-case "
            "--general-numeric-sort --ignore-nonprinting --month-sort --human-numeric-sort --numeric-sort "
            "--random-sort --reverse --sort= --version-sort --batch-size= --check? --debug --key= --merge --stable "
            "--buffer-size= --field-separator= --parallel= --unique --zero-terminated",
            looks=True,
            check=checks.no_plus,
        ),
        "uniq": OptionList(
            options="-cdDiuz -f:s:w: --count --repeated --all-repeated? --skip-fields= --group? --ignore-case "
            "--skip-chars= --unique --zero-terminated --check-chars=",
            looks=True,
            max_operands=1,  # the second one is written
            options_first=True,
        ),
        "date": OptionList(
            options="-Ru -d:r< -I? --date= --debug --iso-8601? --rfc-email --rfc-3339= --reference< --utc --universal",
            operands="text",
            max_operands=1,
            options_first=True,
            check=checks.date_format,
            looks=True,
            names_only=True,
        ),
        "printenv": OptionList(options="-0 --null", operands="text"),
        "shuf": OptionList(
            options="-erz -i:n: --echo --input-range= --head-count= --repeat --zero-terminated",
            looks=True,
            asks_to_look="r repeat",
        ),
        "numfmt": OptionList(
            options="-z -d: --delimiter= --field= --format= --from= --to= --header? --padding= --round= --suffix=",
            operands="text",
            looks=True,
        ),
        "id": OptionList(
            options="-aZgGnruz --group --groups --name --real --user --zero",
            operands="text",
            looks=True,
            names_only=True,
        ),
        "uname": OptionList(
            options="-asnrvmpio --all --kernel-name --nodename --kernel-release --kernel-version --machine --processor "
            "--hardware-platform --operating-system",
            operands="text",
            looks=True,
            names_only=True,
        ),
        "nproc": OptionList(options="--all --ignore=", operands="text", looks=True, names_only=True),
        **_same("whoami arch logname groups", OptionList(operands="text", looks=True, names_only=True)),
        "users": OptionList(operands="text", max_operands=0, looks=True, names_only=True),  # an operand is a file
        "tty": OptionList(options="-s --silent --quiet", operands="text", looks=True, names_only=True),
        "sleep": OptionList(operands="text"),
        # Programs that write; their operands are checked for files that make later commands run code.
        "touch": OptionList(
            options="-acfhm -d:r<t: --no-create --date= --no-dereference --reference< --time=", operands="write"
        ),
        "mkdir": OptionList(options="-pv -m: --mode= --parents --verbose", operands="write"),
        "rmdir": OptionList(options="-pv --ignore-fail-on-non-empty --parents --verbose", operands="write"),
        "rm": OptionList(
            options="-fiIrRdv --force --interactive? --one-file-system --preserve-root --recursive --dir --verbose",
            operands="write",
        ),
        "cp": OptionList(  # no option that copies folders: what is in them is not seen
            options="-bfinpuvT -t> --force --interactive --no-clobber --preserve? --update --verbose "
            "--target-directory> --no-target-directory --strip-trailing-slashes",
            operands="write",
        ),
        "mv": OptionList(
            options="-bfinuvT -t> --force --interactive --no-clobber --update --verbose --target-directory> "
            "--no-target-directory --strip-trailing-slashes",
            operands="write",
        ),
        "ln": OptionList(
            options="-finrsvT -t> --force --interactive --no-dereference --relative --symbolic --target-directory> "
            "--no-target-directory --verbose",
            operands="write",
        ),
        "tee": OptionList(options="-aip --append --ignore-interrupts --output-error?", operands="write"),
        "chmod": OptionList(options="-cfv --changes --silent --quiet --verbose", operands="write", options_first=True),
        "truncate": OptionList(options="-co -s: -r< --no-create --size= --reference<", operands="write"),
    }
)

_GREP: Final = OptionList(
    options="-EFGPiwxzsvVbnHhoqaIrRLlcTZUy# -e:m:d:D:B:A:C: -f< --extended-regexp --fixed-strings --basic-regexp "
    "--perl-regexp --regexp= --file< --ignore-case --no-ignore-case --word-regexp --line-regexp --null-data "
    "--no-messages --invert-match --max-count= --byte-offset --line-number --line-buffered --with-filename "
    "--no-filename --label= --only-matching --quiet --silent --binary-files= --text --directories= --devices= "
    "--recursive --dereference-recursive --include= --exclude= --exclude-from< --exclude-dir= --files-without-match "
    "--files-with-matches --count --initial-tab --null --before-context= --after-context= --context= "
    "--group-separator= --no-group-separator --color? --colour? --binary",
    operands="pattern",
    pattern_options="e f regexp file",
    looks=True,
    asks_to_look="R dereference-recursive d directories",  # these follow links that lead elsewhere
    recursive="r recursive",
    skips_git=checks.grep_skips_git,
    inert=True,
)
_RG: Final = OptionList(  # ripgrep 13 and 14; not --pre, -z, --hostname-bin
    options="-abcFhHiIlLnNopPqsSuUvVwx0 -A:B:C:e:E:g:j:m:M:r:t:T:d: -f< --after-context= --before-context= --context= "
    "--binary --block-buffered --byte-offset --case-sensitive --color= --colors= --column --context-separator= --count "
    "--count-matches --crlf --engine= --encoding= --regexp= --file< --files --files-with-matches "
    "--files-without-match --fixed-strings --follow --glob= --glob-case-insensitive --heading --hidden --iglob= "
    "--ignore-case --include-zero --invert-match --json --replace= --max-columns= --max-columns-preview "
    "--line-buffered --line-number --line-regexp --max-count= --max-depth= --max-filesize= --mmap --multiline "
    "--multiline-dotall --no-config --no-filename --no-heading --no-ignore --no-ignore-dot --no-ignore-exclude "
    "--no-ignore-files --no-ignore-global --no-ignore-messages --no-ignore-parent --no-ignore-vcs --no-line-number "
    "--no-messages --no-mmap --null --null-data --one-file-system --only-matching --passthru --path-separator= "
    "--pcre2 --pcre2-version --pretty --quiet --smart-case --sort= --sortr= --stats --text --threads= --trim --type= "
    "--type-list --type-not= --unrestricted --vimgrep --with-filename --word-regexp --help --version",
    operands="pattern",
    pattern_options="e f regexp file files type-list",
    skips_git=checks.rg_skips_hidden,
    looks=True,
    asks_to_look="L follow",
)
_FD: Final = OptionList(  # fd 8.6; not -x, -X, -l (which runs ls)
    options="-HIusigFaLp0q1V -d:t:e:E:S:o:c:j: --hidden --no-ignore --no-ignore-vcs --no-ignore-parent --unrestricted "
    "--case-sensitive --ignore-case --glob --regex --fixed-strings --absolute-path --follow --full-path --print0 "
    "--max-depth= --min-depth= --exact-depth= --exclude= --prune --type= --extension= --size= --changed-within= "
    "--changed-before= --owner= --color= --threads= --max-results= --quiet --strip-cwd-prefix --one-file-system "
    "--version",
    operands="pattern",
    looks=True,
    asks_to_look="L follow",
    names_only=True,
    recursive="*",
)
_SED: Final = OptionList(  # GNU sed 4.9
    options="-nErsuz -l:e: --quiet --silent --regexp-extended --separate --unbuffered --null-data --line-length= "
    "--expression= --posix --sandbox --debug --help --version",
    operands="pattern",
    pattern_options="e expression",
    check=checks.sed_script,
    looks=True,
)
_AWK: Final = OptionList(
    options="-F:v:", operands="pattern", options_first=True, check=checks.awk_program, looks=True
)  # only options that all four awks know, before the program

SEARCH_AND_TEXT: Final[Mapping[str, OptionList]] = {
    **_gnu(_same("grep egrep fgrep", _GREP)),  # GNU grep 3.8
    **_same("rg ripgrep", _RG),
    **_same("fd fdfind", _FD),
    **_same("sed gsed", _SED),
    **_same("awk gawk mawk nawk", _AWK),
    "find": OptionList(
        reader=checks.find_expression, looks=True, asks_to_look="L", names_only=True, recursive="*"
    ),  # findutils 4.9
    "tree": OptionList(  # tree 2.1: within a cluster, L, P and I take later words, so they stand alone; not -o, -R
        options="-acdfghilnpqrstuvxACDFJQNSUX -L!P!I! --gitignore --ignore-case --matchdirs --metafirst --prune "
        "--noreport --si --du --inodes --device --dirsfirst --filesfirst --nolinks --help --version",
        looks=True,
        asks_to_look="l",
        names_only=True,
        recursive="*",
    ),
    "diff": OptionList(  # diffutils 3.8; not -l (pr)
        options="-qscuenyptTrNiEZbwBadv# -C:U:W:F:x:I:L: --normal --brief --report-identical-files --context? "
        "--unified? --ed --rcs --side-by-side --width= --left-column --suppress-common-lines --show-c-function "
        "--show-function-line= --label= --expand-tabs --initial-tab --tabsize= --suppress-blank-empty --recursive "
        "--no-dereference --new-file --unidirectional-new-file --exclude= --ignore-case --ignore-tab-expansion "
        "--ignore-trailing-space --ignore-space-change --ignore-all-space --ignore-blank-lines "
        "--ignore-matching-lines= --text --strip-trailing-cr --minimal --speed-large-files --color? --help --version",
        looks=True,
        asks_to_look="r recursive",  # it follows links below the folders
    ),
    "sdiff": OptionList(options="-iEZbWBalstdHv -w: --width= --left-column --help --version", looks=True),  # not -o
    "diff3": OptionList(options="-AeE3xXimaTv -L: --help --version", looks=True),
    "cmp": OptionList(
        options="-blsv -i:n: --print-bytes --ignore-initial= --verbose --bytes= --quiet --silent --help --version",
        looks=True,
        inert=True,
    ),
    "file": OptionList(  # file 5.44; not -C -m -f -p -S -z
        options="-bihLkNnr0v -F:e: --brief --mime --mime-type --mime-encoding --extension --dereference "
        "--no-dereference --keep-going --no-pad --raw --print0 --separator= --exclude= --version --help",
        looks=True,
    ),
    "jq": OptionList(  # jq 1.6; not -f -L --slurpfile --rawfile
        options="-cnesrRCMSajVh --compact-output --null-input --exit-status --slurp --raw-output --raw-input "
        "--color-output --monochrome-output --sort-keys --ascii-output --join-output --tab --seq --stream "
        "--arg== --argjson== --args --jsonargs --indent= --unbuffered --version --help",
        operands="pattern",
        check=checks.jq_program,
        looks=True,
    ),
    "xxd": OptionList(  # vim 9.0; a second operand is written, and options after the first count as one
        options="-abeipuEC -c:g:l:s:o: -n:", max_operands=1, options_first=True, clusters=False, looks=True
    ),
    "hexdump": OptionList(options="-bcCdoxv -n:s:e: --help --version", looks=True),  # util-linux 2.38; not -f
    "rev": OptionList(options="-hV --help --version", looks=True, inert=True),
    "column": OptionList(
        options="-texhVJL -n:s:o:c:N:R:H:O:T:W:E: --table --json --separator= --output-separator= --output-width= "
        "--table-columns= --fillrows --help --version",
        looks=True,
    ),
    "strings": OptionList(
        options="-adfwoV -n:t:e:s:T: --all --print-file-name --bytes= --radix= --encoding= --help",
        check=checks.no_response_file,
        looks=True,
    ),
    **_same(
        "less more", OptionList(options="-NSRFXEeinMmgqsw# --version", check=checks.no_plus)
    ),  # no terminal: like cat
}

BUILTINS: Final[Mapping[str, OptionList]] = {  # bash 5.2
    **_same("echo true false :", OptionList(reader=checks.any_text, looks=True, names_only=True, inert=True)),
    "printf": OptionList(reader=checks.printf_arguments, looks=True, names_only=True),
    "test": OptionList(reader=checks.condition, looks=True, names_only=True),
    "type": OptionList(options="-atpPf", operands="text", options_first=True, looks=True, names_only=True),
    "command": OptionList(
        options="-vV", operands="text", options_first=True, check=checks.lookup_only, looks=True, names_only=True
    ),
    "which": OptionList(options="-as", operands="text", looks=True, names_only=True),  # debianutils 5.7
    "cd": OptionList(options="-LPe", max_operands=1, options_first=True, looks=True, names_only=True),
}

OTHERS: Final[Mapping[str, OptionList]] = {
    "hostname": OptionList(options="-fisdIaA", operands="text", max_operands=0, looks=True, names_only=True),
    "uptime": OptionList(  # that of coreutils reads the file that an operand names
        options="-psV --pretty --since", operands="text", max_operands=0, looks=True, names_only=True
    ),
    "free": OptionList(options="-bkmghltwV", operands="text", looks=True, names_only=True),
    "ss": OptionList(options="-tulnpaexmiHO46", operands="text"),
    "man": OptionList(options="-wfkaL: -S:s:", operands="text", check=checks.pages),
    "tar": OptionList(reader=checks.tar_list),
    "unzip": OptionList(options="-lvtzpq", check=checks.shows_archive, options_first=True),  # unzip 6.0
    "zipinfo": OptionList(options="-12smlvhtTz", options_first=True),
    "sqlite3": OptionList(reader=checks.sqlite_query),
    "curl": OptionList(
        options="-sSfLIivkq46 -m:A:H:e: --silent --show-error --fail --location --head --include --verbose --max-time= "
        "--connect-timeout= --retry= --compressed --user-agent= --header= --no-progress-meter --ipv4 --ipv6 --version",
        operands="text",
        check=checks.urls,
    ),
    "wget": OptionList(
        options="-qSv -O:T:t:U: --quiet --server-response --spider --no-config --output-document= --timeout= --tries= "
        "--user-agent= --header= --no-verbose --version",
        operands="text",
        check=checks.wget_to_output,
    ),
}

HARMLESS: Final[Mapping[str, OptionList]] = {**COREUTILS, **SEARCH_AND_TEXT, **BUILTINS, **OTHERS}
