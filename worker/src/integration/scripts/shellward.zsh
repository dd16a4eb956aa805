# Shellward's shell integration for zsh: the file .zshenv in a directory of ours that ZDOTDIR names for a moment. Lines in
# front of this text say what ZDOTDIR was.
#
# It tells the worker where prompts, command lines and output begin and end, by marks (OSC 633) that carry a secret of
# this terminal. Prompts and the user's files are not touched: all is done in the precmd and preexec hooks.

# The secret first, before any file of the user runs. It must neither come from the environment nor get into it: +x also
# holds under allexport, because the variable is never assigned again. `<>` and not `<`: opening a FIFO that nobody writes
# to would wait for ever. (An anonymous function, because options must not stay changed.)
() {
    builtin emulate -L zsh
    builtin unset __shellward_n
    [[ -p $1/nonce ]] || return
    { IFS= builtin read -r -t 2 __shellward_n <>$1/nonce } 2>/dev/null
    if [[ ${#__shellward_n} == 32 && $__shellward_n != *[^0-9a-f]* ]]; then
        builtin typeset -g +x __shellward_n
        builtin print -rn -- $'\e]633;P;Shellward=zsh;'$__shellward_n$'\a'
    else
        builtin unset __shellward_n
    fi
} "${${(%):-%x}:h}"

# From here on zsh finds the user's files by itself; only .zshenv, whose place this file took, has to be read for it.
if [[ $__shellward_zdotdir_set == 1 ]]; then
    builtin export ZDOTDIR="$__shellward_zdotdir"
else
    builtin unset ZDOTDIR
fi
builtin unset __shellward_zdotdir __shellward_zdotdir_set

if [[ ${+__shellward_n} == 1 ]]; then
    # Prints its arguments as one mark each. To the terminal itself and not to stdout: that may be a file (`exec >log`),
    # or held back by a theme that shows its prompt before the user's files have been read.
    __shellward_mark() {
        { builtin printf '\e]633;%s;'$__shellward_n'\a' "$@" >/dev/tty } 2>/dev/null
    }

    # Sets REPLY to $1 as it may stand in a mark: no field separator, no control character. Byte by byte (no_multibyte),
    # because names need not be text.
    __shellward_escape() {
        builtin emulate -L zsh -o no_multibyte -o no_xtrace
        REPLY=${${1//\\/\\\\}//;/\\x3b}
        if [[ $REPLY == *[$'\0'-$'\x1f\x7f']* ]]; then
            local -i code
            local char hex
            for code in {0..31} 127; do
                builtin printf -v hex '\\x%02x' $code
                builtin printf -v char "\\x${hex#??}"
                REPLY=${REPLY//$char/$hex}
            done
        fi
    }

    # The first precmd hook: what the user's hooks print belongs to the prompt and not to the command before. zsh itself
    # gives every hook the true `$?` and restores it afterwards. (No stderr: `set -x` is not to show what we do.)
    __shellward_precmd() {
        {
            builtin local code="$?" filler=0
            # Before the hooks, zsh shows where a last line without an end ends (prompt_sp). That would stand in the
            # output of the command, so we do it behind our mark instead, as long as the user has not switched it off.
            if [[ -o prompt_sp ]]; then
                builtin setopt no_prompt_sp
                builtin typeset -g +x __shellward_sp=1
            elif [[ ${__shellward_sp-0} == 1 && -o prompt_cr ]]; then
                filler=1
            fi
            __shellward_prompt "$code" $filler
            return 0
        } 2>/dev/null
    }

    # A function of its own: leaving one that has local options would undo the option above.
    __shellward_prompt() {
        builtin emulate -L zsh -o no_xtrace -o extended_glob
        # Where we are comes first: it is to be known when the command's end is told.
        local REPLY
        __shellward_escape "$PWD"
        __shellward_mark "P;Cwd=$REPLY" "D;$1"
        if [[ $2 == 1 ]]; then
            __shellward_filler
        fi
        __shellward_places
        builtin typeset -g +x __shellward_seen=1
        __shellward_mark A
        return 0
    }

    # What zsh does for prompt_sp: its mark, blanks up to the end of the line, and back if that was no new line.
    __shellward_filler() {
        local shown=${(%)${PROMPT_EOL_MARK-%B%S%#%s%b}}
        local plain=${shown//$'\e['[0-9;]#[a-zA-Z]/}
        local -i width=$(( COLUMNS - ${(m)#plain} ))
        { builtin print -rn -- "$shown${(l:width:: :)}"$'\r \r' >/dev/tty } 2>/dev/null
    }

    # The last preexec hook: what the user's hooks print does not belong to the command's output. $1 is the line as it was
    # typed; it is empty where there is no history, and then $3 is what zsh makes of it.
    __shellward_preexec() {
        {
            builtin emulate -L zsh -o no_xtrace
            local REPLY
            __shellward_escape "${1:-$3}"
            __shellward_mark "E;$REPLY" C
            __shellward_places
            return 0
        } 2>/dev/null
    }

    # Puts our hooks into their places, each from the other one too: the user's files may set these arrays anew.
    __shellward_places() {
        if [[ ${precmd_functions[1]-} != __shellward_precmd ]]; then
            builtin typeset -ga precmd_functions
            precmd_functions=(__shellward_precmd ${precmd_functions:#__shellward_precmd})
        fi
        if [[ ${preexec_functions[-1]-} != __shellward_preexec ]]; then
            builtin typeset -ga preexec_functions
            preexec_functions=(${preexec_functions:#__shellward_preexec} __shellward_preexec)
        fi
    }

    # The user's files may set both arrays anew. What is scheduled for "now" runs after the precmd hooks of the first
    # prompt, and does their work if they were not there.
    __shellward_first() {
        builtin local code="$?"
        if [[ ! -v __shellward_seen ]]; then
            __shellward_precmd
        fi
        builtin unfunction __shellward_first
        return $code
    }

    () {
        builtin emulate -L zsh
        __shellward_places
        builtin sched +0 __shellward_first
    } 2>/dev/null
fi

if [[ -f ${ZDOTDIR-$HOME}/.zshenv && -r ${ZDOTDIR-$HOME}/.zshenv ]]; then
    builtin source "${ZDOTDIR-$HOME}/.zshenv"
fi
