# Shellward's shell integration for bash 3.2 and newer: what `bash --rcfile` reads in place of ~/.bashrc.
#
# It tells the worker where prompts, command lines and output begin and end, by marks (OSC 633) that carry a secret of
# this terminal. The user's files, prompt, hooks, traps and `$?` stay what they were: every text we add to PS0, PS1 and
# PS2 can be told from the user's and is taken out again before it is put in anew.
#
# Function bodies are parsed here, before the user's aliases exist; `builtin` keeps the user's functions out of the way.
# (After `builtin local` values are split into words like any other argument: quote them, or assign on a line of its own.)

# The secret. It must neither come from the environment nor get into it: `+x` also holds under `set -a`, because the
# variable is never assigned again. `<>` and not `<`: opening a FIFO that nobody writes to would wait for ever.
# (bash 3.2 takes whole seconds only.)
builtin unset -v __shellward_n
if [[ -p ${BASH_SOURCE[0]%/*}/nonce ]]; then
    IFS= builtin read -r -t 2 __shellward_n <>"${BASH_SOURCE[0]%/*}/nonce"
fi 2>/dev/null
if [[ ${#__shellward_n} == 32 && $__shellward_n != *[!0-9a-f]* ]]; then
    builtin declare +x __shellward_n
    builtin printf '\033]633;P;Shellward=bash;%s\a' "$__shellward_n"
else
    builtin unset -v __shellward_n
fi

# A word of ours that is still there when this one is not (an exported PS1 in a nested bash or sh) must come to nothing,
# and so must every other: hence `${__shellward_n+...}` around all of them.
#
# PS1 is where D belongs: bash gives it the status of the command, whatever PROMPT_COMMAND did meanwhile. Where we are is
# told before it. A path needs no escaping: the worker asks the kernel where the name does not come out right.
# `(__shellward_h=HISTCMD)*0:0` prints nothing. It remembers the history's number at the last moment before the user
# types, when no hook can add to the history any more. (An array, so that `set -a` cannot export it.)
__shellward_ps1_front='\[${__shellward_n+\e]633;P;Cwd=${PWD+${PWD//[[:cntrl:]]/?}};$__shellward_n\a\e]633;D;$?;$__shellward_n\a\e]633;A;$__shellward_n\a'
__shellward_ps1_back='\[${__shellward_n+\e]633;B;$__shellward_n\a}\]'
__shellward_ps2_front='\[${__shellward_n+\e]633;F;$__shellward_n\a}\]'
__shellward_ps2_back='\[${__shellward_n+\e]633;G;$__shellward_n\a}\]'
__shellward_count='${__shellward_n:(__shellward_h=${HISTCMD-0})*0:0}'
# Of several lines pasted at once bash runs each without showing a prompt in between, so PS0 says how the one before
# ended. After a prompt that is said twice, and the second time means nothing. F comes first: what follows, the user's own
# PS0 too, is not the echo of what was typed.
__shellward_ps0_front='${__shellward_n+\e]633;F;$__shellward_n\a\e]633;D;$?;$__shellward_n\a}'
# The line is asked for only if the history has just grown by one: it may have ignored this line, and with cmdhist off it
# holds a loop in pieces. A subscript is arithmetic, 0 or 1, and only element 1 is set. With `set -T` the user's traps
# would run for every command in there.
__shellward_ps0_back='${__shellward_n+${__shellward_is[(${HISTCMD-0}-${__shellward_h-0})==1]+$({ { \builtin trap - DEBUG ERR RETURN; } >/dev/null; __shellward_line; } 2>/dev/null)}\e]633;C;$__shellward_n\a'
__shellward_is=([1]=1)
__shellward_h=(0)
# What stands in PROMPT_COMMAND. If that is exported, a nested bash finds the variable unset and does nothing.
__shellward_call='\builtin eval "${__shellward_hook-}"'
__shellward_hook=__shellward_prompt

# Sets __shellward_text to $1 as it may stand in a mark: no field separator, no control character.
__shellward_escape() {
    builtin local char code bs=\\ semi='\x3b'
    __shellward_text=${1//\\/"$bs$bs"}
    __shellward_text=${__shellward_text//;/"$semi"}
    if [[ $__shellward_text == *[[:cntrl:]]* ]]; then
        for code in 0a 09 01 02 03 04 05 06 07 08 0b 0c 0d 0e 0f 10 11 12 13 14 15 16 17 18 19 1a 1b 1c 1d 1e 1f 7f; do
            builtin printf -v char "\\x$code"
            __shellward_text=${__shellward_text//"$char"/"\\x$code"}
        done
    fi
}

# Prints E for the newest line of the history; with an argument its number and `;` first. Runs in a subshell only.
__shellward_line() {
    builtin set +xveu
    HISTTIMEFORMAT=
    builtin local line
    # The `x` keeps newlines at the end of the line.
    line=$(builtin history 1; builtin printf x)
    line=${line%$'\n'x}
    # "  123  line", or "  123* line" for one that was edited later
    if [[ ${1-} ]]; then
        builtin local number
        number=${line%"${line#*[0-9][* ] }"}
        builtin printf '%s;' "${number//[* ]/}"
    fi
    # bash 3 keeps only the first line of a command with a here-document.
    line=${line#*[0-9][* ] }
    if ((BASH_VERSINFO[0] == 3)) && [[ $line == *'<<'* ]]; then
        return
    fi
    __shellward_escape "$line"
    builtin printf '\033]633;E;%s;%s\a' "$__shellward_text" "$__shellward_n"
} 2>/dev/null

# Puts $2 in front of and $3 behind the prompt variable $1, unless exactly that is there. `printf -v` and not an
# assignment: a prompt that is readonly would make bash give up the rest of the hook.
__shellward_wrap() {
    builtin local text inside
    text=${!1-}
    inside=${text#"$2"}
    inside=${inside%"$3"}
    if [[ $text != "$2$inside$3" || $inside == *"$2"* || $inside == *"$3"* ]]; then
        inside=${text//"$2"/}
        inside=${inside//"$3"/}
        builtin printf -v "$1" %s "$2$inside$3"
    fi
}

# The hook: the last thing in PROMPT_COMMAND, so that it sees the prompt the user's hooks have made. It must return 0
# and never have a failing command outside of a condition, because of `set -e` and the user's ERR trap.
#
# A DEBUG trap of the user runs for our hook too, and timers and window titles made with it go wrong. So with such a trap
# ($1) the hook leaves PROMPT_COMMAND once the prompts are wrapped, and what we put into PS0 and PS1 brings it back when
# their lengths change. It stays where the user's hooks make PS1 anew every time: where it finds it changed again.
__shellward_prompt() {
    builtin local export= trap="${1-}" before="${PS1-}" all="${PROMPT_COMMAND[*]-}"
    # `set -a` would put into the environment whatever is assigned here
    if [[ $- == *a* ]]; then
        export=1
        builtin set +a
    fi
    if builtin shopt -q promptvars; then
        __shellward_wrap_all
    else
        __shellward_unwrap_all
    fi
    __shellward_sum=0
    if [[ $__shellward_has_ps0 && ${PROMPT_COMMAND[*]@a} == *r* ]]; then
        __shellward_may=()
    fi
    if [[ $all == *__bp_install* ]]; then
        # bash-preexec, before its first prompt. After that `__bp_interactive_mode` is there; see below.
        __shellward_leave
        precmd_functions+=(__shellward_prompt)
    elif [[ $trap && $all != *__bp_interactive_mode* && ${PS1-} == "$__shellward_ps1_front"* &&
        ( $before == "$PS1" || ! $__shellward_strays ) ]]; then
        __shellward_leave
        __shellward_sum=1${PS0+${#PS0}}1${#PS1}
    else
        __shellward_last || builtin :
    fi
    if [[ $trap && $before != "${PS1-}" ]]; then
        __shellward_strays=1
    fi
    # What is left then, and with a PS1 that is readonly: end the command that ran, by a code nobody knows here, and say
    # where we are.
    if [[ ${PS1-} != "$__shellward_ps1_front"* ]]; then
        builtin printf '\033]633;P;Cwd=%s;%s\a\033]633;D;;%s\a\033]633;A;%s\a' \
            "${PWD+${PWD//[[:cntrl:]]/?}}" "$__shellward_n" "$__shellward_n" "$__shellward_n" >/dev/tty || builtin :
    fi
    if [[ $export ]]; then
        builtin set -a
    fi
} 2>/dev/null

# With `set -T` the user's trap runs for every command in our functions too. At the first time, whether any function could
# be a hook that makes PS1 is a guess.
__shellward_prompt_trapped() {
    if [[ ! $__shellward_looked ]]; then
        __shellward_looked=1
        [[ $(builtin declare -f)${PROMPT_COMMAND[*]-} != *PS1[=]* ]] || __shellward_strays=1
    fi
    if [[ $- != *T* ]]; then
        __shellward_prompt trap
    else
        builtin set +T
        __shellward_prompt trap
        builtin set -T
    fi
}

__shellward_wrap_all() {
    __shellward_wrap PS1 "$__shellward_ps1_front" "$__shellward_ps1_back" || builtin :
    __shellward_wrap PS2 "$__shellward_ps2_front" "$__shellward_ps2_back" || builtin :
    if [[ $__shellward_has_ps0 ]]; then
        __shellward_wrap PS0 "$__shellward_ps0_front" "$__shellward_ps0_back" || builtin :
    fi
}

# Without promptvars bash would show our texts as they are.
__shellward_unwrap_all() {
    builtin local name text
    for name in PS0 PS1 PS2; do
        if [[ ${!name-} == *'${__shellward_n+'* ]]; then
            text=${!name//"$__shellward_ps0_front"/}
            text=${text//"$__shellward_ps0_back"/}
            text=${text//"$__shellward_ps1_front"/}
            text=${text//"$__shellward_ps1_back"/}
            text=${text//"$__shellward_ps2_front"/}
            builtin printf -v "$name" %s "${text//"$__shellward_ps2_back"/}" || builtin :
        fi
    done
}

# Makes our call the last one in PROMPT_COMMAND, or the last but one: after `__bp_interactive_mode` of bash-preexec a
# command counts as the user's. Where bash has lists of hooks ours is an element other than the first, so that it outlives
# `PROMPT_COMMAND=...`; an exported variable must stay a string.
__shellward_last() {
    builtin local nl=$'\n' bp=__bp_interactive_mode last=0 text
    __shellward_leave
    if [[ $__shellward_lists_hooks && ${PROMPT_COMMAND[*]@a} != *x* ]]; then
        for last in "${!PROMPT_COMMAND[@]}"; do
            builtin :
        done
        if [[ $last == 0 || ${PROMPT_COMMAND[last]} != "$bp" ]]; then
            ((++last))
        elif [[ $last == 1 || ${PROMPT_COMMAND[last - 1]+set} ]]; then
            builtin printf -v "PROMPT_COMMAND[$((last + 1))]" %s "$bp"
        else
            ((--last))
        fi
        __shellward_slot=$last
        builtin printf -v "PROMPT_COMMAND[$last]" %s "$__shellward_call"
    else
        __shellward_slot=0 text=${PROMPT_COMMAND-}
        # A line of its own: the user's hook may end in a comment, and with `;` or without.
        if [[ $text == *"$bp"* ]]; then
            text=${text%%"$bp"*}$__shellward_call$nl$bp${text#*"$bp"}
        else
            text=${text:+$text$nl}$__shellward_call
        fi
        builtin printf -v PROMPT_COMMAND %s "$text"
    fi
}

# Takes our call out of PROMPT_COMMAND, and our function out of bash-preexec's.
__shellward_leave() {
    builtin local nl=$'\n' key text
    for key in "${!PROMPT_COMMAND[@]}"; do
        text=${PROMPT_COMMAND[key]}
        if [[ $text == "$__shellward_call" && $key != 0 ]]; then
            builtin unset -v "PROMPT_COMMAND[$key]" || builtin :
        elif [[ $text == *"$__shellward_call"* ]]; then
            __shellward_without_call "$text"
            # `[0]` would make an array of a string.
            key=[$key]
            builtin printf -v "PROMPT_COMMAND${key#"[0]"}" %s "$text" || builtin :
        fi
    done
    for key in "${!precmd_functions[@]}"; do
        if [[ ${precmd_functions[key]} == __shellward_prompt ]]; then
            builtin unset -v "precmd_functions[$key]" || builtin :
        fi
    done
}

# Sets the caller's `text` to $1 without our call. Nothing must stay in its place if that can be: even `:` would give the
# user's next hook a `$?` of 0.
__shellward_without_call() {
    text=${1//"$nl$__shellward_call"/}
    text=${text//"$__shellward_call$nl"/}
    text=${text//"$__shellward_call;"/}
    if [[ $text == "$__shellward_call" ]]; then
        text=
    fi
    text=${text//"$__shellward_call"/builtin :}
}

__shellward_has_ps0= __shellward_lists_hooks= __shellward_heal= __shellward_strays= __shellward_looked= __shellward_sum=0 __shellward_slot=1
if ((BASH_VERSINFO[0] > 5 || (BASH_VERSINFO[0] == 5 && BASH_VERSINFO[1] >= 1))); then
    __shellward_lists_hooks=1
fi
if ((BASH_VERSINFO[0] > 4 || (BASH_VERSINFO[0] == 4 && BASH_VERSINFO[1] >= 4))); then
    __shellward_has_ps0=1
    # Keeps quiet with `set -x`, and what a DEBUG trap prints for it. Not before 4.4, where the trap may have to say
    # something at this place.
    __shellward_call="{ $__shellward_call; } >/dev/null 2>&1"
    # Only outside of a function a trap can be seen; printing it fails if there is anything to print. No keywords here:
    # they could be aliases.
    __shellward_hook='\builtin trap -p DEBUG >&- && __shellward_prompt || __shellward_prompt_trapped'
    # Puts the hook back where it was, unless something is there, and prints nothing: no key is ever set. With a sum of 0
    # always, else when PS0 or PS1 have another length. (No `!`: posix mode has a meaning for it.)
    builtin declare -A __shellward_no
    __shellward_may=([1]=1)
    __shellward_heal='${__shellward_may[1-(1${PS0+${#PS0}}1${PS1+${#PS1}}==__shellward_sum)]+${__shellward_no[${PROMPT_COMMAND[__shellward_slot]:=$__shellward_call}]-}}'
    if [[ ! $__shellward_lists_hooks ]]; then
        __shellward_heal=${__shellward_heal/'[__shellward_slot]'/}
    fi
fi
__shellward_ps1_front+=$__shellward_heal$__shellward_count'}\]'
__shellward_ps0_back+=$__shellward_heal$__shellward_count'}'

# Before 4.4 there is no PS0, only the DEBUG trap: bash runs it before every simple command, those of PROMPT_COMMAND
# too, but not before `( ... )`. So this is a guess, made once between two prompts:
# - the history has grown: a command was typed. If the first thing the trap sees after `(exit 9)` is already a hook, that
#   is late for the output, but the line and the exit code are right;
# - it has not: either Enter on an empty line, and this is a hook, or a line the history ignores.
# HISTCMD is always 1 in here. With `set +o history` it is 1 at the prompt too, and then must not be taken for the number
# of a line that was already told.
# $1 is the status of the user's trap, which skips commands with extdebug and so must be that of the whole; without
# extdebug it must not be told, or an ERR trap and `set -e` would see it. $2 is the command, $3 is `$_`, which the last
# command here gives back.
__shellward_debug() {
    builtin local status="$1" newest number here hooks
    __shellward_trapped=1
    if [[ $__shellward_armed && $BASH_SUBSHELL == 0 && ! ${COMP_LINE+set}${READLINE_LINE+set} ]]; then
        newest=$(__shellward_line numbered)
        number=${newest%%;*}
        if [[ ! $number || $number == "$__shellward_told" ]]; then
            number=0
        fi
        here=${2//[[:space:]]/}
        hooks=${PROMPT_COMMAND-}
        hooks=${hooks//[[:space:]]/}
        if [[ $hooks != *"$here"* ]] || ((__shellward_h != 0 && number >= __shellward_h)); then
            __shellward_armed=
            if [[ $number == "$__shellward_h" ]]; then
                __shellward_told=$number
                builtin printf %s "${newest#*;}" >&2
            fi
            builtin printf '\033]633;C;%s\a' "$__shellward_n" >&2
        fi
        # Everything else our hook does is no command of the user either.
        if [[ $2 == "$__shellward_call" ]]; then
            __shellward_armed=
        fi
    fi
    if [[ $- == *e* ]] || ! builtin shopt -q extdebug; then
        status=0
    fi
    __shellward_return "$status" "$3"
}

__shellward_return() {
    return "$1"
}

# Sets __shellward_trap to the user's DEBUG trap, as `trap -p` has printed it, with our call behind.
__shellward_chain_trap() {
    builtin local nl=$'\n' call='__shellward_debug "$?" "$BASH_COMMAND" "$_"' alone='__shellward_debug 0 "$BASH_COMMAND" "$_"'
    builtin eval "builtin set -- $1"
    __shellward_trap=${3-}
    __shellward_trap=${__shellward_trap//"$nl$call"/}
    __shellward_trap=${__shellward_trap//"$call"/}
    __shellward_trap=${__shellward_trap//"$alone"/}
    if [[ $__shellward_trap ]]; then
        __shellward_trap=$__shellward_trap$nl$call
    else
        __shellward_trap=$alone
    fi
}

# Sets __shellward_look to what looks for the user's trap, if ours was not run for the hook itself. Not done in a
# function: bash gives a function no DEBUG trap and takes back what it sets.
__shellward_prompt_with_trap() {
    __shellward_prompt
    __shellward_look=
    if [[ ! $__shellward_trapped ]]; then
        __shellward_look='__shellward_chain_trap "$(\builtin trap -p DEBUG)"; \builtin trap "$__shellward_trap" DEBUG'
    fi
    __shellward_trapped=
}

__shellward_armed= __shellward_trapped= __shellward_told=
if [[ ! $__shellward_has_ps0 ]]; then
    __shellward_hook='__shellward_prompt_with_trap; \builtin eval "$__shellward_look"; __shellward_armed=1 __shellward_trapped='
fi

if [[ ! ${__shellward_n+set} ]]; then
    builtin unset -v __shellward_hook
fi

# bash would have read this file by itself. In `||` because a last command that fails must not end a shell with `set -e`.
# What comes after it is read with the user's aliases, so it is one plain line.
if [[ -f ~/.bashrc && -r ~/.bashrc ]]; then
    builtin source ~/.bashrc || builtin :
fi
{ \builtin eval "${__shellward_hook-}"; } >/dev/null 2>&1
