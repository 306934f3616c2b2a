"""The job files of launch/, with stand-ins that log what the programs of a cluster are told."""

import fcntl
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.programs import Programs

LAUNCH = Path(__file__).parents[2] / "launch"
SBATCH = LAUNCH / "slurm/train.sbatch"
RENDER = LAUNCH / "kubernetes/render.sh"
START = LAUNCH / "tpu/start.sh"
SCRIPTS = [*sorted(LAUNCH.glob("*/*.sh")), SBATCH]
LOG = 'echo "$(basename "$0") $*" >>"$FAKE_LOG"\n'


class LoggingPrograms(Programs):
    """Stand-ins that log how they are called, and then run `body`."""

    def write(self, name: str, body: str) -> Path:
        return self.write_program(name, f"{LOG}{body}\n")


@pytest.fixture
def programs(tmp_path):
    return LoggingPrograms(tmp_path)


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_scripts_pass_shellcheck(path):
    subprocess.run(["bash", "-n", path], check=True)
    if shutil.which("shellcheck") is None:
        pytest.skip("shellcheck is not installed")
    done = subprocess.run(
        ["shellcheck", "--shell=bash", "--external-sources", path], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout


def test_job_files_name_no_site():
    """Whose account, which partition or namespace: that is for the one who submits."""
    site = re.compile(r"--(account|partition|qos|mail-user)|namespace:|/home/|--project=")
    for path in (SBATCH, START, RENDER, *LAUNCH.glob("kubernetes/*.yaml")):
        assert not site.search(path.read_text()), path


class Slurm(LoggingPrograms):
    """What the batch script of a job sees: its variables, srun and scontrol."""

    def __init__(self, root: Path):
        super().__init__(root)
        self.write("srun", 'echo "$FAKE_SAYS" >&2; exit "$FAKE_STATUS"')
        self.write("scontrol", 'exit "${FAKE_SCONTROL:-0}"')

    def job(self, *flags, status=0, says="", **variables):
        return self.bash(
            SBATCH,
            *flags,
            FAKE_STATUS=str(status),
            FAKE_SAYS=says,
            SLURM_SUBMIT_DIR=str(self.cwd),
            SLURM_JOB_ID="7",
            SLURM_JOB_NAME="trial",
            SLURM_JOB_NODELIST="a,b",
            **variables,
        )

    def element(self, number, *flags, **variables):
        return self.job(
            *flags, SLURM_ARRAY_JOB_ID="7", SLURM_ARRAY_TASK_ID=str(number), **variables
        )


@pytest.fixture
def slurm(tmp_path):
    return Slurm(tmp_path)


def srun(flags, python="python3"):
    return f"srun --wait=300 {python} -m launch.train {flags}"


def test_a_slurm_job_trains_what_its_variables_say(slurm):
    done, commands = slurm.job("--config.a=1 2")
    assert done.returncode == 0, done.stderr
    assert commands == [
        srun("--config=configs/quickstart.py:ccdclm --workdir=runs/trial --config.a=1 2")
    ]
    interpreter = slurm.cwd / ".venv/bin/python"
    interpreter.parent.mkdir(parents=True)
    interpreter.symlink_to("/usr/bin/env")
    _, commands = slurm.job(CONFIG="c.py", WORKDIR="/shared/run")
    assert commands == [srun("--config=c.py --workdir=/shared/run", ".venv/bin/python")]
    assert slurm.job(PYTHON="/opt/python")[1][0].startswith("srun --wait=300 /opt/python -m")


@pytest.mark.parametrize(
    ("status", "requeued"),
    [(0, False), (1, False), (2, False), (75, True), (137, False), (143, True)],
)
def test_a_slurm_job_is_requeued_if_it_was_interrupted(slurm, status, requeued):
    done, commands = slurm.job(status=status)
    assert done.returncode == status
    assert commands[1:] == (["scontrol requeue 7"] if requeued else [])


def test_a_slurm_job_one_of_whose_processes_failed_is_not_requeued(slurm):
    """The others lose it and exit with 75, and srun's exit code is the highest."""
    line = "srun: error: node1: task{}: Exited with exit code {}"
    mixed = line.format("s 0,2-3", 75) + "\n" + line.format(" 1", 2)
    done, commands = slurm.job(status=75, says=mixed)
    assert (done.returncode, len(commands)) == (2, 1)
    assert mixed in done.stderr
    alike = line.format("s 0-3", 75)
    done, commands = slurm.job(status=75, says=alike)
    assert (done.returncode, commands[1:]) == (75, ["scontrol requeue 7"])


def test_requeueing_ends(slurm):
    done, commands = slurm.job(status=75, REQUEUES="3", SLURM_RESTART_COUNT="2")
    assert commands[1:] == ["scontrol requeue 7"] and not done.stderr.strip()
    for variables in ({"REQUEUES": "3", "SLURM_RESTART_COUNT": "3"}, {"FAKE_SCONTROL": "1"}):
        done, _ = slurm.job(status=75, **variables)
        assert done.returncode == 75
        assert "not requeued; to resume, submit it with the same CONFIG" in done.stderr


def test_an_array_varies_the_seed_or_the_flags(slurm):
    base = "--config=configs/quickstart.py:ccdclm --workdir=runs/trial"
    _, commands = slurm.element(0, "--config.a=1", status=75)
    assert commands == [
        srun(f"{base}/0 --config.a=1 --config.training.seed=0"),
        "scontrol requeue 7_0",
    ]
    (slurm.cwd / "flags").write_text("--config.a=2 --config.b=3\n\n--config.a=4")
    _, commands = slurm.element(1, "--config.a=1", ARGUMENTS="flags")
    assert commands == [srun(f"{base}/1 --config.a=1 --config.a=2 --config.b=3")]
    assert slurm.element(3, ARGUMENTS="flags")[1] == [srun(f"{base}/3 --config.a=4")]
    for missing in (0, 2, 4):
        done, commands = slurm.element(missing, ARGUMENTS="flags")
        assert (done.returncode, commands) == (2, [])
        assert f"flags: no flags on line {missing};" in done.stderr
    done, commands = slurm.element(1, ARGUMENTS="nothing")
    assert (done.returncode, commands) == (2, [])


def render(programs, *arguments, **variables):
    done, _ = programs.bash(RENDER, *arguments, **variables)
    assert done.returncode == 0, done.stderr
    return list(yaml.safe_load_all(done.stdout))


def test_kubernetes_trains_with_an_indexed_job(programs):
    flags = ["--config.a=it's", "--config.b=x & y", '--config.c="1: 2"']
    service, job = render(programs, "train", *flags, NAME="run", PROCESSES="3", GPUS="4")
    assert service["metadata"]["name"] == job["metadata"]["name"] == "run"
    assert service["spec"]["clusterIP"] == "None"
    assert service["spec"]["selector"] == {"batch.kubernetes.io/job-name": "run"}
    spec = job["spec"]
    assert spec["completionMode"] == "Indexed"
    assert spec["completions"] == spec["parallelism"] == 3
    pod = spec["template"]["spec"]
    # Names of pods are made of these two; a failure policy needs pods that do not restart.
    assert (pod["subdomain"], pod["restartPolicy"]) == ("run", "Never")
    (container,) = pod["containers"]
    assert container["command"] == ["python", "-m", "launch.train"]
    assert container["args"] == [
        "--config=configs/quickstart.py:ccdclm",
        "--workdir=/storage/runs/run",
        "--coordinator_address=run-0.run:8476",
        "--num_processes=3",
        "--process_id=$(JOB_COMPLETION_INDEX)",
        *flags,
    ]
    assert container["resources"]["limits"]["nvidia.com/gpu"] == "4"


def test_every_value_of_a_manifest_is_quoted(programs):
    values = {
        "NAME": "yes",
        "CONFIG": "a b # it's: {x} ${NAME}",
        "WORKDIR": "'\"\\ a: b",
        "IMAGE": "123",
        "CLAIM": "null",
        "CPUS": "2",
        "MEMORY": "8",
    }
    service, job = render(programs, "train", "--config.a=$(HOME) & \\1", "- x: y", **values)
    assert service["metadata"]["name"] == job["metadata"]["name"] == "yes"
    assert service["spec"]["selector"] == {"batch.kubernetes.io/job-name": "yes"}
    pod = job["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert container["args"] == [
        "--config=a b # it's: {x} ${NAME}",
        "--workdir='\"\\ a: b",
        "--coordinator_address=yes-0.yes:8476",
        "--num_processes=2",
        "--process_id=$(JOB_COMPLETION_INDEX)",
        # Kubernetes reads $$ as a dollar sign, and expands nothing.
        "--config.a=$$(HOME) & \\1",
        "- x: y",
    ]
    assert (pod["subdomain"], container["image"]) == ("yes", "123")
    assert container["resources"] == {
        "requests": {"cpu": "2", "memory": "8"},
        "limits": {"memory": "8", "nvidia.com/gpu": "0"},
    }
    claim, prepare = render(programs, "prepare", **values, ACCESS="true", SIZE="20")
    assert claim["spec"] == {"accessModes": ["true"], "resources": {"requests": {"storage": "20"}}}
    prepare_pod = prepare["spec"]["template"]["spec"]
    assert prepare_pod["containers"][0]["image"] == "123"
    claims = [spec["volumes"][0]["persistentVolumeClaim"] for spec in (pod, prepare_pod)]
    assert claim["metadata"]["name"] == "null" and claims == [{"claimName": "null"}] * 2


@pytest.mark.parametrize(
    ("variable", "value", "message"),
    [
        ("PROCESSES", "two", "error: PROCESSES is 'two'; expected a whole number"),
        ("RETRIES", "x", "error: RETRIES is 'x'; expected a whole number"),
        ("PROCESSES", "08", "error: PROCESSES is '08'; expected a whole number without leading"),
        ("GRACE", "0120", "error: GRACE is '0120'; expected a whole number without leading"),
        ("PORT", "8476 # a", "error: PORT is '8476 # a'; expected a whole number"),
        ("CONFIG", "a\nb", "has a line break or another control character; remove it"),
    ],
)
def test_values_that_are_no_part_of_a_manifest_are_refused(programs, variable, value, message):
    done, _ = programs.bash(RENDER, "train", **{variable: value})
    assert (done.returncode, done.stdout) == (2, "") and message in done.stderr


def test_kubernetes_tells_interruptions_from_failures(programs):
    _, job = render(programs, "train")
    (container,) = job["spec"]["template"]["spec"]["containers"]
    by_code = {
        code: rule["action"]
        for rule in job["spec"]["podFailurePolicy"]["rules"]
        if "onExitCodes" in rule and rule["onExitCodes"]["containerName"] == container["name"]
        for code in rule["onExitCodes"]["values"]
    }
    assert by_code == {2: "FailJob", 75: "Ignore", 143: "Ignore"}
    assert job["spec"]["backoffLimit"] == 3 * job["spec"]["completions"]


def test_kubernetes_prepares_on_the_volume_that_it_trains_on(programs):
    claim, prepare = render(programs, "prepare", "--corpus=sotu", CLAIM="disk", SIZE="1Gi")
    _, train = render(programs, "train", CLAIM="disk")
    assert claim["metadata"]["name"] == "disk"
    assert claim["spec"]["resources"]["requests"]["storage"] == "1Gi"
    pods = [job["spec"]["template"]["spec"] for job in (prepare, train)]
    assert pods[0]["containers"][0]["args"] == ["--corpus=sotu"]
    for pod in pods:
        assert pod["volumes"][0]["persistentVolumeClaim"]["claimName"] == "disk"
        assert pod["containers"][0]["volumeMounts"][0]["mountPath"] == "/storage"


@pytest.mark.parametrize("name", ["prepare", "train"])
def test_manifests_are_what_kubernetes_expects(programs, name):
    kubernetes_validate = pytest.importorskip("kubernetes_validate")
    for resource in render(programs, name, "--a=1"):
        kubernetes_validate.validate(resource, "1.29", strict=True)


def test_a_manifest_that_is_not_there_is_named(programs):
    for arguments in ([], ["traim"]):
        done, _ = programs.bash(RENDER, *arguments)
        assert done.returncode == 2 and done.stderr.startswith("usage: ")


def test_the_image_has_what_training_needs():
    text = (LAUNCH / "kubernetes/Containerfile").read_text()
    copied = {word for line in re.findall(r"^COPY (.*) \S+$", text, re.M) for word in line.split()}
    assert copied == {"setup.cfg", "pyproject.toml", "README.md", "LICENSE"} | {
        "dclm_jax",
        "launch",
        "configs",
    }
    for name in copied:
        assert (LAUNCH.parent / name).exists()


# Stands for gcloud and the hosts of a slice: files are copied to, and commands run in, HOME.
GCLOUD = """
for argument; do
  case $argument in
    --command=*) cd "$HOME" && exec bash -c "${argument#*=}" ;;
  esac
done
[[ $4 != scp ]] || cp "$5" "$HOME/${6#*:}"
"""
# Stands for the interpreter of a host: an environment that it makes holds a copy of it.
PYTHON = """
if [[ $2 == venv ]]; then mkdir -p "$3/bin" && cp "$0" "$3/bin/python"; fi
if [[ $2 == launch.train ]]; then exit "${FAKE_STATUS:-0}"; fi
"""
# Stands for the metadata server.
CURL = """
case ${*: -1} in
  */agent-worker-number) echo 1 ;;
  */worker-network-endpoints) echo "$FAKE_HOSTS" ;;
  *) exit 22 ;;
esac
"""


@pytest.fixture
def tpu(programs):
    programs.write("gcloud", GCLOUD)
    programs.write("curl", CURL)
    for name in ("python3.14", "python3"):
        programs.write(name, PYTHON)
    return programs


def test_tpu_hosts_get_the_tree_and_train(tpu):
    variables = {
        "NAME": "slice",
        "WORKDIR": "/mnt/my runs/x",
        "SETUP": "echo mounted >>mounts",
        "FAKE_HOSTS": "unknown:0:10.0.0.7,unknown:1:10.0.0.8",
    }
    done, log = tpu.bash(START, "--config.a=it's $HOME", ZONE="zone-a", **variables)
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(
        r"gcloud compute tpus tpu-vm scp \S+/dclm_jax.tar.gz slice:dclm_jax.tar.gz "
        r"--worker=all --zone=zone-a",
        log[0],
    )
    ssh = "gcloud compute tpus tpu-vm ssh slice --worker=all --zone=zone-a --command="
    assert log[1].startswith(ssh)
    tree = tpu.cwd / "dclm_jax"
    assert (tree / "dclm_jax/__init__.py").is_file() and (tree / "configs/quickstart.py").is_file()
    assert (tree / "mounts").read_text() == "mounted\n"
    python = [line for line in log if line.startswith("python ")]
    assert python[-2:] == [
        "python -m pip install --quiet --disable-pip-version-check jax[tpu] etils[epath-gcs]",
        "python -m launch.train --config=configs/quickstart.py:ccdclm --workdir=/mnt/my runs/x "
        "--config.a=it's $HOME "
        "--coordinator_address=10.0.0.7:8476 --num_processes=2 --process_id=1",
    ]
    # After a preemption the same command goes on; gcloud knows the zone by itself.
    variables["FAKE_HOSTS"] = "host-0,host-1,host-2"
    done, log = tpu.bash(START, FAKE_STATUS="75", **variables)
    assert done.returncode == 75
    assert log[0].endswith("slice:dclm_jax.tar.gz --worker=all")
    assert log[-1].endswith("=host-0:8476 --num_processes=3 --process_id=1")


def test_a_tpu_slice_trains_once_at_a_time(tpu):
    (tpu.cwd / "dclm_jax").mkdir()
    with open(tpu.cwd / "dclm_jax/lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done, log = tpu.bash(START)
    assert done.returncode == 2
    assert "error: this slice is training already" in done.stderr
    assert not any(line.startswith("python") for line in log)
