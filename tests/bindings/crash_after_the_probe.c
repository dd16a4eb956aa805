/* Works in the probe; writes where nothing is at every later open. */
#define ON_OPEN(count) if ((count) > 1) *(volatile int *)8 = 1
#include "base.h"
