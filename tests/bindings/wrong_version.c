/* Is of a later version. */
#define VERSION (SHELLWARD_PTY_ABI_VERSION + 1)
#include "base.h"
