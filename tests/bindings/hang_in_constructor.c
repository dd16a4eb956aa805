/* Never comes back from being loaded, deaf to what can be ignored, and a child of it neither. */
#define ON_LOAD hang()
static void hang(void);
#include "base.h"
static void hang(void)
{
    char text[32];
    signal(SIGTERM, SIG_IGN);
    signal(SIGHUP, SIG_IGN);
    signal(SIGINT, SIG_IGN);
    if (fork() == 0) {
        snprintf(text, sizeof text, "%d", (int)getpid());
        note("child", text);
    }
    for (;;)
        pause();
}
