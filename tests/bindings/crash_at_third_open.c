/* Works in the probe and once more; writes where nothing is at the third open. */
#define ON_OPEN(count) if ((count) == 3) *(volatile int *)8 = 1
#include "base.h"
