"""A Slurm of one node for a test: controller, node and munge run as children of the test, on free ports, with all their files in one folder."""
import contextlib
import getpass
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import tempfile
import time

PROGRAMS = {"munged": "munge", "slurmctld": "slurmctld", "slurmd": "slurmd", "sbatch": "slurm-client"}
START_LIMIT_S = 120

CONFIG = """\
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller_port}
SlurmdPort={node_port}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
# How long a requeued job waits, at least.
AuthInfo=socket={folder}/munge.sock,cred_expire=5
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
# No cgroups and no accounting: a container or a build machine has neither.
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MpiDefault=none
MailProg=/bin/true
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerParameters=batch_sched_delay=0,sched_interval=1
SlurmdParameters=config_overrides
ReturnToService=2
MinJobAge=3600
NodeName={host} NodeAddr=127.0.0.1 CPUs={cpus} State=UNKNOWN
PartitionName=main Nodes={host} Default=YES MaxTime=INFINITE State=UP
"""


def missing():
    """Debian packages of programs that are not there."""
    path = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])
    return [package for program, package in PROGRAMS.items() if shutil.which(program, path=path) is None]


def free_ports(count):
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for probe in sockets:
            probe.bind(("127.0.0.1", 0))
        return [probe.getsockname()[1] for probe in sockets]


class LocalSlurm:
    """`with LocalSlurm(cpus) as slurm:` it takes jobs. At the end every job and daemon has ended and the folder is gone."""

    def __init__(self, cpus):
        # The path of a socket is short, and munge wants no folder above it that others may write, except /tmp.
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="slurm-", dir="/tmp"))
        self.folder.chmod(0o755)
        self.cpus = cpus
        self.daemons = []
        self.environment = {**os.environ, "SLURM_CONF": str(self.folder / "slurm.conf")}

    def __enter__(self):
        try:
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        if len(self.daemons) == 3:
            self.call("scancel", "--user", getpass.getuser(), check=False)
            self.wait_for("the end of all jobs", lambda: not self.queue(), limit_s=60, check=False)
        for daemon in reversed(self.daemons):
            daemon.send_signal(signal.SIGTERM)
            try:
                daemon.wait(timeout=30)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def start(self):
        for name in ("state", "spool"):
            (self.folder / name).mkdir(mode=0o700)
        key = self.folder / "munge.key"
        key.write_bytes(os.urandom(1024))
        key.chmod(0o400)
        controller_port, node_port = free_ports(2)
        (self.folder / "slurm.conf").write_text(CONFIG.format(host=socket.gethostname().split(".")[0], user=getpass.getuser(), folder=self.folder,
                                                               cpus=self.cpus, controller_port=controller_port, node_port=node_port))
        self.daemon("munged", "--foreground", f"--socket={self.folder}/munge.sock", f"--key-file={key}", f"--log-file={self.folder}/munge.log",
                    f"--pid-file={self.folder}/munge.pid", f"--seed-file={self.folder}/munge.seed")
        self.wait_for("munge", (self.folder / "munge.sock").exists)
        self.daemon("slurmctld", "-D", "-i")
        self.daemon("slurmd", "-D", "-N", socket.gethostname().split(".")[0])
        self.wait_for("an idle node", lambda: self.call("sinfo", "--noheader", "--format=%T", check=False).stdout.strip() == "idle")

    def daemon(self, name, *arguments):
        program = shutil.which(name, path=os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"]))
        with open(self.folder / f"{name}.out", "wb") as log:
            self.daemons.append(subprocess.Popen([program, *arguments], stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self.environment))

    def wait_for(self, what, ready, limit_s=START_LIMIT_S, check=True):
        end = time.monotonic() + limit_s
        while time.monotonic() < end:
            if answer := ready():
                return answer
            if dead := [daemon.args[0] for daemon in self.daemons if daemon.poll() is not None]:
                raise AssertionError(f"{what}: {dead[0]} has ended\n{self.logs()}")
            time.sleep(0.2)
        if check:
            raise AssertionError(f"{what}: not within {limit_s} s\n{self.logs()}")
        return None

    def call(self, *command, check=True):
        result = subprocess.run(list(map(str, command)), capture_output=True, text=True, env=self.environment)
        if check and result.returncode != 0:
            raise AssertionError(f"{' '.join(map(str, command))}: status {result.returncode}\n{result.stdout}\n{result.stderr}")
        return result

    def queue(self):
        """{job, as "7_3": state} of all that has not ended."""
        lines = self.call("squeue", "--noheader", "--array", "--format=%i %T", check=False).stdout.splitlines()
        return dict(line.split() for line in lines)

    def logs(self):
        return "\n".join(f"--- {path.name}\n{path.read_text(errors='replace')[-2000:]}" for path in sorted(self.folder.glob("*.[lo]*"))
                         if path.suffix in (".log", ".out"))
