#!/usr/bin/env python3
"""What is shipped fits together: promtool accepts the Prometheus files, dashboards and alerts use metrics that the server exports, the container takes
its packages and files from where they are, configuration files and manifests use fields and flags that exist, the viewer's libraries run on the Node.js that it asks for."""
import json
import pathlib
import re
import shutil
import subprocess

import lint_common
import yaml

METRIC_FILES = ("server/core/metrics.h", "server/core/metrics.cc")
RULES = "deploy/prometheus/rules.yml"
WEB = "clients/web"


def check(root, files):
    yield from check_prometheus(root, files)
    yield from check_metrics(root, files)
    yield from check_container(root, files)
    yield from check_compose(root, files)
    yield from check_server_config(root, files)
    yield from check_kubernetes(root, files)
    yield from check_node_engines(root, files)


def check_prometheus(root, files):
    promtool = shutil.which("promtool")
    configs = [("config", name) for name in files if name == "deploy/prometheus/prometheus.yml"] + [("rules", name) for name in files if name == RULES]
    if configs and promtool is None:
        yield "promtool is not installed (Debian package prometheus)"
        return
    for kind, name in configs:
        run = subprocess.run([promtool, "check", kind, name], cwd=root, capture_output=True, text=True)
        if run.returncode != 0:
            yield f"{name}: promtool: {' '.join((run.stdout + run.stderr).split())}"


def exported_metrics(root):
    """Names that a query may use: a histogram is three series."""
    names = set()
    for file in METRIC_FILES:
        text = (root / file).read_text(encoding="utf-8") if (root / file).exists() else ""
        for match in re.finditer(r'(METRIC\(Histogram, \w+, )?"(palpate_\w+)"', text):
            histogram, name = match.groups()
            names |= {name + suffix for suffix in ("_bucket", "_sum", "_count")} if histogram else {name}
    return names


def check_metrics(root, files):
    dashboards = [name for name in files if name.startswith("deploy/grafana/dashboards/") and name.endswith(".json")]
    queries = []
    recorded = set()
    if RULES in files:
        try:
            groups = yaml.safe_load((root / RULES).read_text(encoding="utf-8"))["groups"]
        except (yaml.YAMLError, KeyError, TypeError):
            return  # promtool has said so
        for rule in (rule for group in groups for rule in group["rules"]):
            queries.append((f"{RULES} ({rule.get('alert') or rule.get('record')})", rule["expr"]))
            recorded |= {rule["record"]} if "record" in rule else set()
    for name in dashboards:
        try:
            dashboard = json.loads((root / name).read_text(encoding="utf-8"))
        except json.JSONDecodeError as error:
            yield f"{name}: not JSON: {error}"
            continue
        for panel in dashboard["panels"]:
            queries += [(f"{name} (panel {panel['title']})", target["expr"]) for target in panel.get("targets", [])]
        for variable in dashboard.get("templating", {}).get("list", []):
            queries.append((f"{name} (variable {variable['name']})", variable["query"]["query"]))
    if not queries:
        return
    exported = exported_metrics(root)
    for where, query in queries:
        for metric in sorted(set(re.findall(r"(?:\w+:)*palpate_\w+(?::\w+)*", query))):
            if metric not in exported | recorded:
                yield f"{where}: no such metric: {metric}"


def check_container(root, files):
    if "Dockerfile" not in files:
        return
    text = (root / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", " ")
    groups = re.findall(r"^\[(\w+)\]$", (root / "deploy/packages.txt").read_text(encoding="utf-8"), re.MULTILINE)
    for group in sorted(set(re.findall(r"/packages\.(\w+)", text)) - {"txt"}):
        if group not in groups:
            yield f"Dockerfile: deploy/packages.txt has no group [{group}]"
    for line in text.splitlines():
        words = line.split()
        if words[:1] == ["COPY"] and not words[1].startswith("--"):
            for source in words[1:-1]:
                if not (root / source).exists():
                    yield f"Dockerfile: COPY of {source}, which does not exist"
    for scene in re.findall(r"/usr/local/share/palpate/(scenes/[\w.-]+\.json)", text):
        if scene not in files:
            yield f"Dockerfile: starts {scene}, which does not exist"
    if not re.search(r"^USER (?!root)\w+", text, re.MULTILINE):
        yield "Dockerfile: runs as root"
    if not re.search(r"^HEALTHCHECK .*CMD", text, re.MULTILINE):
        yield "Dockerfile: has no health check"


def check_compose(root, files):
    name = "deploy/compose.yaml"
    if name not in files:
        return
    compose = yaml.safe_load((root / name).read_text(encoding="utf-8"))
    for service, spec in compose["services"].items():
        for port in spec.get("ports", []):
            if not port.startswith("127.0.0.1:"):
                yield f"{name}: {service} publishes {port} to the world"
        for volume in spec.get("volumes", []):
            source = volume.split(":")[0]
            if source.startswith("."):
                if not (root / "deploy" / source).exists():
                    yield f"{name}: {service} mounts {source}, which does not exist"
            elif source not in compose["volumes"]:
                yield f"{name}: {service} mounts {source}, which is no declared volume"
        if "image" in spec and "build" not in spec and ":" not in spec["image"]:
            yield f"{name}: {service} has no fixed version"


def config_fields(root):
    text = (root / "proto/palpate/v1/config.proto").read_text(encoding="utf-8")
    return set(re.findall(r"^\s*(?:optional |repeated )?\w+ (\w+) = \d+;", text, re.MULTILINE))


def check_kubernetes(root, files):
    """What the API itself asks for is checked by tests/e2e/cluster."""
    for name in (n for n in files if n.startswith("deploy/kubernetes/")):
        try:
            manifests = [manifest for manifest in yaml.safe_load_all((root / name).read_text(encoding="utf-8")) if manifest]
        except yaml.YAMLError as error:
            yield f"{name}: not YAML: {' '.join(str(error).split())}"
            continue
        for spec in (m["spec"]["template"]["spec"] for m in manifests if "template" in m.get("spec", {})):
            for argument in (a for container in spec["containers"] for a in container.get("args", [])):
                flag, _, value = argument.removeprefix("--").partition("=")
                if flag.replace("-", "_") not in config_fields(root):
                    yield f"{name}: --{flag} is no flag of palpate-server"
                scene = re.fullmatch(r"/usr/local/share/palpate/(scenes/.*)", value)
                if scene and scene[1] not in files:
                    yield f"{name}: {scene[1]} does not exist"


def check_server_config(root, files):
    for name in (n for n in files if n.startswith("deploy/") and pathlib.PurePosixPath(n).name == "server.json"):
        fields = config_fields(root)
        for key in json.loads((root / name).read_text(encoding="utf-8")):
            if key not in fields:
                yield f"{name}: {key} is no field of ServerConfig"


def check_node_engines(root, files):
    """`engines` of package.json is the one need that ./run and CMake check, so no library may need more."""
    name = f"{WEB}/package-lock.json"
    if name not in files:
        return
    packages = json.loads((root / name).read_text(encoding="utf-8"))["packages"]
    need = json.loads((root / WEB / "package.json").read_text(encoding="utf-8"))["engines"]["node"]
    if packages[""].get("engines", {}).get("node") != need:
        yield f"{name}: engines differ from those of package.json"
        return
    least = version_numbers(need.removeprefix(">="))
    for package, entry in packages.items():
        wants = entry.get("engines", {}).get("node", "*")
        if not any(accepts(alternative, least) for alternative in wants.split("||")):
            yield f"{name}: {package} needs Node.js {wants}, package.json allows {need}"


def version_numbers(text):
    parts = [int(part) for part in re.findall(r"\d+", text)[:3]]
    return tuple(parts + [0] * (3 - len(parts)))


def accepts(comparators, version):
    """Whether a version meets all of npm's comparators like ">=14 <21" or "^18.18.0"."""
    for sign, text in re.findall(r"(>=|<=|>|<|\^|~|=|)\s*v?(\d[\w.-]*)", comparators):
        bound = version_numbers(text)
        meets = {">=": version >= bound, "<=": version <= bound, ">": version > bound, "<": version < bound,
                 "^": version >= bound and version[0] == bound[0], "~": version >= bound and version[:2] == bound[:2]}
        named = len(re.findall(r"\d+", text))
        if not meets.get(sign, version[:named] == bound[:named]):
            return False
    return True


HEADER = {METRIC_FILES[0]: 'METRIC(Counter, a, "palpate_a_total", kNoLabel, kNone, "A.")\nMETRIC(Histogram, b, "palpate_b_seconds", kNoLabel, kStep, "B.")\n'}
PACKAGES = {"deploy/packages.txt": "[build]\nx\n"}
DOCKER = "FROM x\nCOPY --from=p /packages.build /p\nUSER palpate\nHEALTHCHECK --interval=1s CMD x\n"


def dashboard(expr):
    return {"deploy/grafana/dashboards/d.json": json.dumps({"panels": [{"title": "t", "targets": [{"expr": expr}]}]})}


def lock(need, wants):
    packages = {"": {"engines": {"node": ">=18.19"}}, "node_modules/a": {"engines": {"node": wants}}, "node_modules/b": {}}
    return {f"{WEB}/package.json": json.dumps({"engines": {"node": need}}), f"{WEB}/package-lock.json": json.dumps({"packages": packages})}


def manifest(argument):
    spec = {"containers": [{"args": [argument]}]}
    return {"deploy/kubernetes/s.yaml": f"# a comment\n---\n{json.dumps({'spec': {'template': {'spec': spec}}})}\n",
            "proto/palpate/v1/config.proto": "  string web_root = 1;\n  repeated string scene = 2;\n"}


def rules(expr):
    return {RULES: f"groups: [{{name: g, rules: [{{record: 'x:palpate_b_seconds:p99', expr: '{expr}'}}]}}]\n"}


SELF_TESTS = [
    ({**HEADER, **dashboard("rate(palpate_a_total[1m]) + palpate_b_seconds_bucket")}, None),
    ({**HEADER, **dashboard("x:palpate_b_seconds:p99"), **rules("palpate_b_seconds_sum")}, None),
    ({**HEADER, **dashboard("rate(palpate_c_total[1m])")}, "no such metric: palpate_c_total"),
    ({**HEADER, **dashboard("palpate_b_seconds")}, "no such metric: palpate_b_seconds"),
    ({**HEADER, **dashboard("x:palpate_b_seconds:p50"), **rules("palpate_b_seconds_sum")}, "no such metric: x:palpate_b_seconds:p50"),
    ({**HEADER, **rules("rate(palpate_a_total)")}, "promtool"),
    ({**PACKAGES, "Dockerfile": DOCKER}, None),
    ({**PACKAGES, "Dockerfile": DOCKER + "COPY nothing /x\n"}, "COPY of nothing"),
    ({**PACKAGES, "Dockerfile": DOCKER + "RUN x /packages.other\n"}, "no group [other]"),
    ({**PACKAGES, "Dockerfile": DOCKER.replace("USER palpate\n", "")}, "runs as root"),
    ({**PACKAGES, "Dockerfile": DOCKER.replace("HEALTHCHECK", "# ")}, "no health check"),
    ({"deploy/compose.yaml": "services: {a: {image: 'x:1', ports: ['80:80']}}\nvolumes: {}\n"}, "to the world"),
    ({"deploy/compose.yaml": "services: {a: {image: 'x:1', volumes: ['./none:/x']}}\nvolumes: {}\n"}, "mounts ./none"),
    ({"deploy/compose.yaml": "services: {a: {image: x}}\nvolumes: {}\n"}, "no fixed version"),
    ({"deploy/x/server.json": '{"listen": "", "lisen": ""}', "proto/palpate/v1/config.proto": "  string listen = 1;\n"}, "lisen is no field"),
    (manifest("--web-root=/x"), None),
    (manifest("--web-rot=/x"), "--web-rot is no flag"),
    (manifest("--scene=/usr/local/share/palpate/scenes/none.json"), "scenes/none.json does not exist"),
    ({"deploy/kubernetes/s.yaml": "a: [\n"}, "not YAML"),
    (lock(">=18.19", ">=18"), None),
    (lock(">=18.19", "^14.18.0 || ^18.12 || >= 20.0.0"), None),
    (lock(">=18.19", ">=14 <21"), None),
    (lock(">=18.19", "18.x"), None),
    (lock(">=18.19", "*"), None),
    (lock(">=18.19", ">=18.20"), "node_modules/a needs Node.js >=18.20, package.json allows >=18.19"),
    (lock(">=18.19", "^20.19.0 || >=22.12.0"), "node_modules/a needs"),
    (lock(">=18", ">=14"), "engines differ"),
]

if __name__ == "__main__":
    lint_common.main(check, SELF_TESTS)
