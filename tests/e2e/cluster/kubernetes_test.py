#!/usr/bin/env python3
"""Manifests for Kubernetes: those of `palpate job submit` and of deploy/kubernetes fit the types of its API, and the rules that no type states.
usage: kubernetes_test.py PALPATE REPOSITORY_ROOT"""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

import yaml

PALPATE, ROOT = "", pathlib.Path()
INTERRUPTED = 4  # exit status of `palpate job run`


def documents(path):
    return [document for document in yaml.safe_load_all(path.read_text()) if document]


def complaints(manifests, folder):
    """What TypeScript says when the manifests are values of the types made from the published schemas: unknown, missing and ill-typed fields."""
    lines = []
    for number, manifest in enumerate(manifests):
        group, _, version = manifest["apiVersion"].rpartition("/")
        module = f"{group.removesuffix('.k8s.io') or 'core'}/{version}"
        lines.append(f'import type {{ {manifest["kind"]} as Kind{number} }} from "kubernetes-types/{module}";')
        lines.append(f"export const manifest{number}: Kind{number} = {json.dumps(manifest)};")
    modules = ROOT / "clients/web/node_modules"
    (folder / "check.ts").write_text("\n".join(lines) + "\n")
    (folder / "tsconfig.json").write_text(json.dumps({"files": ["check.ts"], "compilerOptions": {
        "strict": True, "noEmit": True, "skipLibCheck": True, "types": [], "module": "preserve", "moduleResolution": "bundler",
        "paths": {"kubernetes-types/*": [f"{modules}/kubernetes-types/*"]}}}))
    checked = subprocess.run([shutil.which("node"), modules / "typescript/bin/tsc", "--project", folder / "tsconfig.json"], capture_output=True, text=True)
    return checked.stdout + checked.stderr


def pod_specs(manifest):
    if manifest["kind"] == "Pod":
        return [manifest["spec"]]
    return [manifest["spec"]["template"]["spec"]] if "template" in manifest["spec"] else []


class KubernetesTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def submit(self, tasks, *arguments):
        """The manifests by the names of their files."""
        folder = self.folder / "liver sweep"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        (folder / "manifest.json").write_text(json.dumps({"format": 1, "tasks": [{"index": index, "id": f"task-{index:06d}"} for index in range(tasks)]}))
        subprocess.run([PALPATE, "job", "submit", folder, "--kubernetes", *map(str, arguments)], check=True, capture_output=True, text=True)
        return {path.stem: documents(path)[0] for path in (folder / "kubernetes").glob("*.yaml")}

    def rich(self):
        return self.submit(20, "--tasks-per-process", 7, "--at-once", 2, "--memory", 2.5, "--cpus", 4, "--gpus", 1, "--namespace", "lab", "--claim", "shared",
                           "--claim-path", "sweeps/liver", "--image", "registry.example/palpate:1.0", "--retries", 5, "--grace", 90)

    def shipped(self):
        return [manifest for path in sorted((ROOT / "deploy/kubernetes").glob("*.yaml")) for manifest in documents(path)]

    def test_manifests_fit_the_types_of_the_api(self):
        plain, rich = self.submit(3), self.rich()
        self.assertEqual((set(plain), set(rich)), ({"volume", "files", "job", "collect"}, {"files", "job", "collect"}))
        everything = [*plain.values(), *rich.values(), *self.shipped()]
        self.assertGreaterEqual({manifest["kind"] for manifest in everything}, {"Job", "Pod", "PersistentVolumeClaim", "Deployment", "Service"})
        self.assertEqual(complaints(everything, self.folder), "")

    def test_the_check_sees_mistakes(self):
        def broken(change):
            job = json.loads(json.dumps(self.submit(3)["job"]))
            change(job)
            return job

        cases = {
            "\"backoffLimitPerIndices\"' does not exist in type 'JobSpec'": lambda job: job["spec"].update(backoffLimitPerIndices=3),
            "Type 'string' is not assignable to type 'number'": lambda job: job["spec"].update(completions="3"),
            "Property 'template' is missing": lambda job: job["spec"].pop("template"),
            "\"readOnlyRootFileSystem\"' does not exist in type 'SecurityContext'":
                lambda job: pod_specs(job)[0]["containers"][0]["securityContext"].update(readOnlyRootFileSystem=True),
            "Property 'operator' is missing": lambda job: job["spec"]["podFailurePolicy"]["rules"][1]["onExitCodes"].pop("operator"),
        }
        said = complaints([broken(change) for change in cases.values()], self.folder)
        for complaint in cases:
            self.assertIn(complaint, said)
        self.assertEqual(said.count("error TS"), len(cases))

    def test_jobs_keep_the_rules_of_the_api_server(self):
        for tasks, arguments in ((1, ()), (3, ()), (2500, ())):
            job = self.submit(tasks, *arguments)["job"]
            spec, pod = job["spec"], pod_specs(job)[0]
            self.assertEqual(spec["completionMode"], "Indexed")
            self.assertLessEqual(spec["completions"], 1000)
            self.assertLessEqual(spec["parallelism"], spec["completions"])
            self.assertEqual(pod["restartPolicy"], "Never")  # pod failure policies and limits for an index need it
            self.assertEqual(spec["podReplacementPolicy"], "Failed")  # the only one beside a pod failure policy
            actions = {}
            for rule in spec["podFailurePolicy"]["rules"]:
                self.assertEqual(len(rule.keys() - {"action"}), 1)
                if "onExitCodes" in rule:
                    values = rule["onExitCodes"]["values"]
                    self.assertEqual((values, rule["onExitCodes"]["operator"]), (sorted(set(values)), "In"))
                    self.assertNotIn(0, values)
                    self.assertIn(rule["onExitCodes"]["containerName"], [container["name"] for container in pod["containers"]])
                    actions.update(dict.fromkeys(values, rule["action"]))
                else:
                    self.assertEqual((rule["action"], rule["onPodConditions"]), ("Ignore", [{"type": "DisruptionTarget", "status": "True"}]))
            # An interrupted process is started again for nothing, a bad input never; what is left, a crash, counts.
            self.assertEqual(actions, {INTERRUPTED: "Ignore", 1: "FailIndex", 2: "FailIndex"})

    def test_options_arrive(self):
        job = self.rich()["job"]
        spec, pod = job["spec"], pod_specs(job)[0]
        container = pod["containers"][0]
        self.assertEqual((spec["completions"], spec["parallelism"], spec["backoffLimitPerIndex"], pod["terminationGracePeriodSeconds"]), (3, 2, 5, 90))
        self.assertEqual((job["metadata"]["name"], job["metadata"]["namespace"]), ("liver-sweep", "lab"))
        self.assertEqual(container["image"], "registry.example/palpate:1.0")
        self.assertEqual(container["resources"], {"requests": {"cpu": "4", "memory": "2560Mi"}, "limits": {"memory": "2560Mi", "nvidia.com/gpu": "1"}})
        self.assertEqual(pod["volumes"][0]["persistentVolumeClaim"]["claimName"], "shared")
        self.assertEqual(container["volumeMounts"][0], {"name": "job", "mountPath": "/job"})
        self.assertEqual(self.rich()["collect"]["spec"]["template"]["spec"]["containers"][0]["command"], ["palpate", "job", "collect", "/job/sweeps/liver"])
        self.assertNotIn("limits", {**self.rich()["collect"]["spec"]["template"]["spec"]["containers"][0]["resources"], "limits": {}}["limits"])

    def test_pods_are_confined_and_their_mounts_exist(self):
        for manifest in [*self.submit(3).values(), *self.rich().values(), *self.shipped()]:
            for pod in pod_specs(manifest):
                self.assertTrue(pod["securityContext"]["runAsNonRoot"])
                self.assertFalse(pod["automountServiceAccountToken"])
                volumes = {volume["name"] for volume in pod["volumes"]}
                for container in pod["containers"]:
                    context = container["securityContext"]
                    self.assertTrue(context["readOnlyRootFilesystem"])
                    self.assertFalse(context["allowPrivilegeEscalation"])
                    self.assertEqual(context["capabilities"], {"drop": ["ALL"]})
                    self.assertEqual({mount["name"] for mount in container["volumeMounts"]} - volumes, set())
                    ports = {port["name"] for port in container.get("ports", [])}
                    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
                        if "httpGet" in container.get(probe, {}):
                            self.assertIn(container[probe]["httpGet"]["port"], ports)
                    if manifest["kind"] == "Deployment":
                        self.assertGreaterEqual(container.keys(), {"startupProbe", "readinessProbe", "livenessProbe"})

    def test_services_find_their_pods(self):
        shipped = self.shipped()
        pods = [manifest["spec"]["template"] for manifest in shipped if manifest["kind"] == "Deployment"]
        for service in (manifest for manifest in shipped if manifest["kind"] == "Service"):
            selected = [pod for pod in pods if service["spec"]["selector"].items() <= pod["metadata"]["labels"].items()]
            self.assertEqual(len(selected), 1)
            ports = {port["name"] for container in selected[0]["spec"]["containers"] for port in container["ports"]}
            self.assertLessEqual({port["targetPort"] for port in service["spec"]["ports"]}, ports)

    def test_pods_share_out_the_tasks(self):
        programs = self.folder / "programs"
        programs.mkdir()
        (programs / "palpate").write_text('#!/bin/sh\necho "$@"\n')
        (programs / "palpate").chmod(0o755)
        job = self.rich()["job"]
        command = pod_specs(job)[0]["containers"][0]["command"]
        ran = [subprocess.run(command, capture_output=True, text=True, check=True,
                              env={"PATH": f"{programs}:{os.environ['PATH']}", "JOB_COMPLETION_INDEX": str(index)}).stdout.strip()
               for index in range(job["spec"]["completions"])]
        self.assertEqual(ran, [f"job run /job/sweeps/liver --tasks {tasks}" for tasks in ("0-6", "7-13", "14-19")])

    def test_submitting_asks_kubectl(self):
        programs = self.folder / "programs"
        programs.mkdir()
        (programs / "kubectl").write_text(f'#!/bin/sh\necho "$@" > {self.folder}/asked\n')
        (programs / "kubectl").chmod(0o755)
        self.submit(3)
        subprocess.run([PALPATE, "job", "submit", self.folder / "liver sweep", "--kubernetes", "--submit"], check=True, capture_output=True,
                       env={**os.environ, "PATH": f"{programs}:{os.environ['PATH']}"})
        self.assertEqual((self.folder / "asked").read_text().strip(), f"apply -f {self.folder}/liver sweep/kubernetes/job.yaml")


if __name__ == "__main__":
    PALPATE, ROOT = sys.argv[1], pathlib.Path(sys.argv[2])
    unittest.main(argv=sys.argv[:1] + sys.argv[3:])
