/* Needs something that is nowhere. */
void shellward_test_nowhere(void);
#define ON_OPEN(count) ((void)(count), shellward_test_nowhere())
#include "base.h"
