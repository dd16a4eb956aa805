# Shellward's shell integration for fish: a file among those that fish reads from the directories in XDG_DATA_DIRS, where
# ours stands in front. A line before this text says what the variable was, if it was set.
#
# It tells the worker where prompts, command lines and output begin and end, by marks (OSC 633) that carry a secret of
# this terminal. Prompts and the user's files are not touched: all is done by handlers of fish's own events.

# Nested shells and the like must find everything as it was. fish has already looked for functions and completions in our
# directory; there are none.
set -l __shellward_dir (string replace -r '/fish/vendor_conf\.d/[^/]*$' '' -- (status filename))
if set -q __shellward_xdg
    set -gx XDG_DATA_DIRS $__shellward_xdg
    set -e __shellward_xdg
else
    set -e XDG_DATA_DIRS
end
for __shellward_list in fish_function_path fish_complete_path __fish_vendor_completionsdirs __fish_vendor_functionsdirs __fish_vendor_confdirs
    if set -q $__shellward_list
        set -g $__shellward_list (string match -v -- "$__shellward_dir/*" $$__shellward_list)
    end
end
set -e __shellward_list

# The secret. It must neither come from the environment nor get into it. `read` has no time limit in fish: the worker
# holds the FIFO open and filled, and closes it when it gives up waiting, which ends the wait here too. Only an
# interactive shell reads, so that no fish started by another configuration file takes it away.
set -e __shellward_n
if status is-interactive; and builtin test -p $__shellward_dir/nonce
    read -l __shellward_n <$__shellward_dir/nonce
    if string match -qr '^[0-9a-f]{32}$' -- "$__shellward_n"
        set -gu __shellward_n $__shellward_n
        builtin printf '\e]633;P;Shellward=fish;%s\a' $__shellward_n
    end
end

if set -gq __shellward_n
    # Prints $argv[1] as it may stand in a mark: no field separator, no control character. Split at newlines first,
    # because `string` takes and gives lines.
    function __shellward_escape
        set -l text (string split \n -- $argv[1] | string replace -a \\ \\\\ | string replace -a ';' '\\x3b' | string join '\\x0a')
        if string match -qr '[\x01-\x1f\x7f]' -- $text
            for code in 01 02 03 04 05 06 07 08 09 0b 0c 0d 0e 0f 10 11 12 13 14 15 16 17 18 19 1a 1b 1c 1d 1e 1f 7f
                set text (string replace -ar "\\x$code" "\\\\x$code" -- $text)
            end
        end
        builtin printf %s $text
    end

    # Where we are, and how the command ended: in this order, so that the directory is known when the end is told.
    function __shellward_ended
        builtin printf '\e]633;P;Cwd=%s;%s\a\e]633;D;%s;%s\a' (__shellward_escape $PWD) $__shellward_n $argv[1] $__shellward_n
    end

    # D at once, and not only with the prompt: before that fish prints what makes the prompt begin on a line of its own,
    # which is no output of the command.
    function __shellward_postexec --on-event fish_postexec
        __shellward_ended $status
    end

    function __shellward_prompt --on-event fish_prompt
        __shellward_ended $status
        builtin printf '\e]633;A;%s\a' $__shellward_n
    end

    function __shellward_preexec --on-event fish_preexec
        builtin printf '\e]633;E;%s;%s\a\e]633;C;%s\a' (__shellward_escape $argv[1]) $__shellward_n $__shellward_n
    end
end
