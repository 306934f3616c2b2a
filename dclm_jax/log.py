"""The loggers of the library, which itself prints nothing; commands print their records.

`logger` has warnings, and notes about input and results (INFO). `job_logger` has the lines in which
a job that makes files, such as training, reports its work (INFO).
"""

import logging

logger = logging.getLogger("dclm_jax")
job_logger = logging.getLogger("dclm_jax.job")
