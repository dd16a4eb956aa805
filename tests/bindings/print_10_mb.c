/* Prints 10 MB to its standard output and error while it is loaded, and works otherwise. */
#define ON_LOAD chatter()
static void chatter(void);
#include "base.h"
static void chatter(void)
{
    static char text[10000];
    memset(text, 120, sizeof text);
    text[sizeof text - 1] = 10;
    for (int n = 0; n < 1000; n++) {
        if (write(1, text, sizeof text) < 0 || write(2, text, 100) < 0)
            continue;
    }
}
