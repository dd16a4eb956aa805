//! Which variables of the host must not reach a shell.
//!
//! What lives here: the names, by reason. What must not: values; nothing is decided by them.

/// Names that stay behind, exactly.
const STAYS: &[&str] = &[
    // Loader and libc: code or files of somebody's choosing in every program.
    "GCONV_PATH",
    "GETCONF_DIR",
    "GLIBC_TUNABLES",
    "HOSTALIASES",
    "LOCALDOMAIN",
    "LOCPATH",
    "MALLOC_TRACE",
    "NIS_PATH",
    "NLSPATH",
    "RESOLV_HOST_CONF",
    "RES_OPTIONS",
    "TMPPREFIX",
    // Shells: code that runs at their start, and options.
    "BASHOPTS",
    "BASH_ENV",
    "BASH_LOADABLES_PATH",
    "BASH_XTRACEFD",
    "CDPATH",
    "ENV",
    "FPATH",
    "GLOBIGNORE",
    "IFS",
    "PROMPT_COMMAND",
    "PS0",
    "PS1",
    "PS2",
    "PS3",
    "PS4",
    "READNULLCMD",
    "RPROMPT",
    "RPS1",
    "SHELLOPTS",
    "ZDOTDIR",
    // Interpreters: code that runs in every program written for them.
    "BUN_INSPECT",
    "CLASSPATH",
    "GEM_PATH",
    "JAVA_TOOL_OPTIONS",
    "JDK_JAVA_OPTIONS",
    "LUA_CPATH",
    "LUA_INIT",
    "LUA_PATH",
    "NODE_CHANNEL_FD",
    "NODE_OPTIONS",
    "NODE_PATH",
    "NODE_REPL_EXTERNAL_MODULE",
    "NODE_UNIQUE_ID",
    "PERL5DB",
    "PERL5LIB",
    "PERL5OPT",
    "PERLLIB",
    "PERL_UNICODE",
    "PHPRC",
    "PHP_INI_SCAN_DIR",
    "PYTHONBREAKPOINT",
    "PYTHONEXECUTABLE",
    "PYTHONHOME",
    "PYTHONINSPECT",
    "PYTHONPATH",
    "PYTHONSTARTUP",
    "PYTHONUSERBASE",
    "PYTHONWARNINGS",
    "RUBYLIB",
    "RUBYOPT",
    "_JAVA_OPTIONS",
    // The service manager talks to the host, not to a shell in it.
    "CACHE_DIRECTORY",
    "CONFIGURATION_DIRECTORY",
    "CREDENTIALS_DIRECTORY",
    "EXIT_CODE",
    "EXIT_STATUS",
    "INVOCATION_ID",
    "JOURNAL_STREAM",
    "LOGS_DIRECTORY",
    "LOG_NAMESPACE",
    "MAINPID",
    "MANAGERPID",
    "MANAGERPIDFDID",
    "NOTIFY_SOCKET",
    "PIDFILE",
    "REMOTE_ADDR",
    "REMOTE_PORT",
    "RUNTIME_DIRECTORY",
    "SERVICE_RESULT",
    "STATE_DIRECTORY",
    "SYSTEMD_EXEC_PID",
    "SYSTEMD_NSS_DYNAMIC_BYPASS",
    "FDSTORE",
    // The terminal the host was started from is not this one.
    "COLORFGBG",
    "COLUMNS",
    "DESKTOP_STARTUP_ID",
    "GPG_TTY",
    "INSIDE_EMACS",
    "LINES",
    "MC_SID",
    "SSH_CLIENT",
    "SSH_CONNECTION",
    "SSH_ORIGINAL_COMMAND",
    "SSH_TTY",
    "STY",
    "TERM",
    "TERMCAP",
    "TERMINATOR_DBUS_NAME",
    "TERMINATOR_DBUS_PATH",
    "TERMINATOR_UUID",
    "TERM_SESSION_ID",
    "TILIX_ID",
    "VTE_VERSION",
    "WINDOW",
    "WINDOWID",
    "WINDOWPATH",
    "WT_PROFILE_ID",
    "WT_SESSION",
    "XDG_ACTIVATION_TOKEN",
    "YAKUAKE_ID",
    // Who asked the host to run, and where.
    "DOAS_USER",
    "OLDPWD",
    "PKEXEC_UID",
    "PWD",
    "SHLVL",
    "_",
];

/// Beginnings of names that stay behind.
const STAYS_PREFIX: &[&str] = &[
    "ALACRITTY_",
    "BASH_FUNC_",
    "DYLD_",
    "GHOSTTY_",
    "GNOME_TERMINAL_",
    "ITERM_",
    "KITTY_",
    "KONSOLE_",
    "LC_TERMINAL",
    "LD_",
    "LISTEN_",
    "MEMORY_PRESSURE_",
    "SHELLWARD_",
    "SUDO_",
    "TERM_PROGRAM",
    "TMUX",
    "VSCODE_",
    "WATCHDOG_",
    "WEZTERM_",
    "XTERM_",
    "ZELLIJ",
];

/// Words in a name that say its value is a secret.
const SECRET_WORDS: &[&str] = &[
    "APIKEY",
    "CREDENTIAL",
    "CREDENTIALS",
    "PASSPHRASE",
    "PASSWD",
    "PASSWORD",
    "SECRET",
    "TOKEN",
];

/// Parts of a name that say the same.
const SECRET_PARTS: &[&str] = &["ACCESS_KEY", "API_KEY", "PRIVATE_KEY"];

/// Whether a variable of the host may reach the shell.
pub(super) fn travels(name: &[u8]) -> bool {
    let Ok(name) = std::str::from_utf8(name) else {
        // Nobody looks for such a name, and no list can hold it.
        return false;
    };
    if STAYS.contains(&name) || STAYS_PREFIX.iter().any(|prefix| name.starts_with(prefix)) {
        return false;
    }
    // The agent's socket is no secret itself, and people miss it at once.
    name == "SSH_AUTH_SOCK" || !is_secret(&name.to_ascii_uppercase())
}

fn is_secret(name: &str) -> bool {
    name.split('_').any(|word| SECRET_WORDS.contains(&word))
        || name.ends_with("_KEY")
        || SECRET_PARTS.iter().any(|part| name.contains(part))
}
