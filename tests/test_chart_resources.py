"""Resources of the chart by subject: secrets, probes, discovery, network, state, boards."""

import copy
import gzip
import json
from typing import Any

import helm_python
import pytest
import yaml

from chart import (
    CHART,
    STATIC,
    Manifest,
    everything,
    merged,
    one,
    pod_specs,
    render,
    rendered_files,
    values_of,
    workload,
)
from kvcache_exporter.targets.kubernetes.found import ROLES

ALL = everything()


def exporter(name: str) -> Manifest:
    """The exporter's container in what a values file gives."""
    return dict(workload(ALL[name])["spec"]["containers"][0])


class TestSecrets:
    """Labels, HTTPS, passwords and tokens, all at once, as in examples/secured.yaml."""

    manifests = ALL["secured"]

    def test_no_configmap_and_no_argument_holds_one(self) -> None:
        """Secrets are named, and nothing but names of files reaches ConfigMaps, arguments and environment."""
        assert not [m for m in self.manifests if m["kind"] == "Secret"]
        (config_map,) = (m for m in self.manifests if m["kind"] == "ConfigMap")
        config = yaml.safe_load(config_map["data"]["config.yml"])
        assert config["targets"][0]["bearer_token_file"] == "/etc/kvcache-exporter/secrets/engine/token"
        assert not {"bearer_token", "password", "basic_auth"} & set(config["targets"][0])

    def test_the_chart_has_no_value_for_one(self) -> None:
        """Of what sounds like a secret only the names of Secrets and of their keys can be set."""
        names = set()

        def walk(schema: Any, above: str = "") -> None:
            for key, part in schema.get("properties", {}).items():
                if any(word in key.lower() for word in ("password", "bearer", "credential", "apikey")):
                    names.add(above + key)
                walk(part, f"{above}{key}.")

        walk(json.loads((CHART / "values.schema.json").read_text()))
        assert names == {
            "web.basicAuth.passwordKey",
            "serviceMonitor.basicAuth.password",
            "podMonitor.basicAuth.password",
        }
        monitor = {"serviceMonitor": {"enabled": True, "basicAuth": {"password": "letmein"}}}
        with pytest.raises(helm_python.HelmValuesError, match="password"):
            render(STATIC | monitor)

    def test_the_monitor_asks_as_the_exporter_wants_to_be_asked(self) -> None:
        monitor, service = one(self.manifests, "ServiceMonitor"), one(self.manifests, "Service")
        assert monitor["metadata"]["labels"]["release"] == "kube-prometheus-stack"
        (endpoint,) = monitor["spec"]["endpoints"]
        assert endpoint["port"] == service["spec"]["ports"][0]["name"]
        assert endpoint["scheme"] == "https"
        assert endpoint["tlsConfig"] == {
            "ca": {"secret": {"name": "kvcache-tls", "key": "ca.crt"}},
            "serverName": "kvcache-kvcache-exporter.monitoring.svc",
        }
        assert endpoint["basicAuth"] == {
            "username": {"name": "kvcache-scrape", "key": "username"},
            "password": {"name": "kvcache-scrape", "key": "password"},
        }
        assert endpoint["honorLabels"] is True

    def test_web_configuration_and_certificates_lie_in_one_folder(self) -> None:
        spec = workload(self.manifests)["spec"]
        (web,) = (v["projected"]["sources"] for v in spec["volumes"] if v["name"] == "web")
        assert [s["secret"]["name"] for s in web] == ["kvcache-web", "kvcache-tls"]
        assert [i["path"] for s in web for i in s["secret"]["items"]] == ["web.yml", "tls.crt", "tls.key"]
        assert "--web.config.file=/etc/kvcache-exporter/web/web.yml" in spec["containers"][0]["args"]


PROBES = ("startupProbe", "livenessProbe", "readinessProbe")


@pytest.mark.parametrize(
    ("name", "probe"),
    [
        ("static-values", {"httpGet": {"port": "metrics", "scheme": "HTTP"}}),
        ("tls-values", {"httpGet": {"port": "metrics", "scheme": "HTTPS"}}),
        ("basic-auth-values", {"httpGet": {"port": "metrics", "scheme": "HTTP"}}),
        ("client-certificates-values", {"tcpSocket": {"port": "metrics"}}),
        ("secured", {"httpGet": {"port": "metrics", "scheme": "HTTPS"}}),
    ],
)
def test_probes_follow_tls_and_passwords(name: str, probe: Manifest) -> None:
    container = exporter(name)
    for key in PROBES:
        found = {k: v for k, v in container[key].items() if k in ("httpGet", "tcpSocket")}
        path = {"readinessProbe": "/-/ready"}.get(key, "/-/healthy")
        expected = copy.deepcopy(probe)
        if "httpGet" in expected:
            expected["httpGet"]["path"] = path
        assert found == expected
        assert container["ports"][0]["name"] == "metrics"


class TestDiscovery:
    @pytest.mark.parametrize(
        ("name", "expected"),
        [
            ("static-values", []),
            ("defaults", [("Role", "monitoring", ["pods"])]),
            ("all-namespaces-values", [("ClusterRole", None, ["pods"])]),
            (
                "several-namespaces-values",
                [("Role", "a", ["pods"]), ("Role", "b", ["endpointslices", "pods"])],
            ),
        ],
    )
    def test_roles_are_no_wider_than_the_targets(self, name: str, expected: list[Any]) -> None:
        roles = [m for m in ALL[name] if m["kind"] in ("Role", "ClusterRole")]
        found = [
            (m["kind"], m["metadata"].get("namespace"), [r for rule in m["rules"] for r in rule["resources"]])
            for m in roles
        ]
        assert found == expected
        assert {verb for m in roles for rule in m["rules"] for verb in rule["verbs"]} <= {"list", "watch"}
        groups = {(rule["apiGroups"][0], rule["resources"][0]) for m in roles for rule in m["rules"]}
        assert groups <= {("", "pods"), ("discovery.k8s.io", "endpointslices")}

    @pytest.mark.parametrize("name", ROLES)
    def test_the_rule_is_of_what_the_exporter_asks_for(self, name: str) -> None:
        target = {"kubernetes": {"namespaces": ["a"], "role": name, "selector": "app=vllm", "port": "http"}}
        (rule,) = one(render({"config": {"targets": [target]}}), "Role")["rules"]
        asked = ROLES[name]
        assert (rule["apiGroups"], rule["resources"]) == ([asked.api_group], [asked.plural])

    def test_an_account_of_a_kubeconfig_needs_no_role(self) -> None:
        target = {"kubernetes": {"namespaces": ["a"], "kubeconfig": "/etc/kubeconfig"}}
        manifests = render({"config": {"targets": [target]}})
        assert not [m for m in manifests if m["kind"] == "Role"]
        assert workload(manifests)["spec"]["automountServiceAccountToken"] is False

    def test_bindings_name_the_account_of_the_pod(self) -> None:
        manifests = ALL["several-namespaces-values"]
        account = workload(manifests)["spec"]["serviceAccountName"]
        for binding in (m for m in manifests if m["kind"] == "RoleBinding"):
            (subject,) = binding["subjects"]
            assert (subject["name"], subject["namespace"]) == (account, "monitoring")
            assert binding["roleRef"]["name"] in {
                m["metadata"]["name"]
                for m in manifests
                if m["kind"] == "Role" and m["metadata"]["namespace"] == binding["metadata"]["namespace"]
            }

    def test_a_token_is_mounted_only_if_it_is_used(self) -> None:
        for name, manifests in ALL.items():
            spec = workload(manifests)["spec"]
            has_roles = any(m["kind"].endswith("Role") for m in manifests)
            assert spec["automountServiceAccountToken"] is has_roles, name
            for kind in ("Pod", "Job"):
                if kind in pod_specs(manifests):
                    assert pod_specs(manifests)[kind]["automountServiceAccountToken"] is False

    def test_releases_in_two_namespaces_do_not_share_a_cluster_role(self) -> None:
        values = values_of(CHART / "ci" / "all-namespaces-values.yaml")
        names = {one(render(values, namespace=n), "ClusterRole")["metadata"]["name"] for n in ("a", "b")}
        assert len(names) == 2


class TestNetworkPolicy:
    def test_what_scrapes_and_what_is_scraped_may_pass(self) -> None:
        spec = one(ALL["network-policy-values"], "NetworkPolicy")["spec"]
        first = spec["ingress"][0]
        assert first["ports"] == [{"port": 9409, "protocol": "TCP"}]
        assert first["from"][0] == {
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}
        }
        ports = [{p["port"] for p in rule.get("ports", ())} for rule in spec["egress"]]
        assert ports == [{53}, {8000}, {443, 6443}]

    def test_the_test_pod_may_pass(self) -> None:
        manifests = ALL["network-policy-values"]
        labels = one(manifests, "Pod")["metadata"]["labels"]
        allowed = one(manifests, "NetworkPolicy")["spec"]["ingress"][0]["from"][1]["podSelector"][
            "matchLabels"
        ]
        assert allowed.items() <= labels.items()

    def test_the_api_server_may_have_an_address_of_either_family(self) -> None:
        rule = one(ALL["network-policy-values"], "NetworkPolicy")["spec"]["egress"][2]
        assert set(rule) == {"ports"}, "without an address every one is meant"
        narrowed = {"networkPolicy": {"enabled": True, "apiServerCidrs": ["10.96.0.1/32", "fd00::1/128"]}}
        (*_, rule) = one(render(narrowed), "NetworkPolicy")["spec"]["egress"]
        assert [peer["ipBlock"]["cidr"] for peer in rule["to"]] == ["10.96.0.1/32", "fd00::1/128"]

    def test_no_list_of_ports_that_is_empty_opens_all(self) -> None:
        """To Kubernetes a rule without ports is one for every port."""
        values = {"networkPolicy": {"enabled": True, "apiServerPorts": [], "engines": []}}
        (rule,) = one(render(values), "NetworkPolicy")["spec"]["egress"]
        assert {port["port"] for port in rule["ports"]} == {53}

    def test_the_api_server_is_reachable_only_if_it_is_asked(self) -> None:
        spec = one(render(STATIC | {"networkPolicy": {"enabled": True}}), "NetworkPolicy")["spec"]
        assert not [rule for rule in spec["egress"] if "ipBlock" in str(rule)]


def test_on_the_network_of_the_node_names_of_services_still_work() -> None:
    assert workload(ALL["scheduling-values"])["spec"]["dnsPolicy"] == "ClusterFirstWithHostNet"
    own = render(STATIC | {"hostNetwork": True, "dnsPolicy": "None"})
    assert workload(own)["spec"]["dnsPolicy"] == "None"


class TestState:
    def volume(self, name: str) -> Manifest:
        (found,) = (v for v in workload(ALL[name])["spec"]["volumes"] if v["name"] == "state")
        return dict(found)

    def test_is_on_an_emptydir_or_a_claim(self) -> None:
        assert self.volume("static-values")["emptyDir"] == {"sizeLimit": "256Mi"}
        claim = one(ALL["persistence-values"], "PersistentVolumeClaim")
        name = claim["metadata"]["name"]
        assert self.volume("persistence-values")["persistentVolumeClaim"] == {"claimName": name}
        assert claim["spec"]["storageClassName"] == "fast"
        assert self.volume("existing-claim-values")["persistentVolumeClaim"] == {"claimName": "my-claim"}
        (template,) = one(ALL["stateful-values"], "StatefulSet")["spec"]["volumeClaimTemplates"]
        assert template["metadata"]["name"] == "state"
        assert (template["apiVersion"], template["kind"]) == ("v1", "PersistentVolumeClaim")
        assert template["spec"]["storageClassName"] == ""

    def test_has_one_owner_at_a_time(self) -> None:
        for name in ("persistence-values", "static-values"):
            spec = one(ALL[name], "Deployment")["spec"]
            assert spec["strategy"] == {"type": "Recreate"}
            assert spec["replicas"] == 1

    def test_lies_where_the_configuration_says(self) -> None:
        config = yaml.safe_load(one(ALL["static-values"], "ConfigMap")["data"]["config.yml"])
        (mount,) = (m for m in exporter("static-values")["volumeMounts"] if m["name"] == "state")
        assert config["state"]["path"].startswith(mount["mountPath"] + "/")
        assert not mount.get("readOnly")


class TestDashboards:
    def test_each_board_arrives_as_it_was_made(self) -> None:
        manifests = render(STATIC | {"dashboards": {"enabled": True}})
        boards = {
            name: text
            for m in manifests
            for name, text in m.get("data", {}).items()
            if name.endswith(".json")
        }
        made = sorted((CHART.parents[1] / "dashboards" / "generated").glob("*.json"))
        assert sorted(boards) == [path.name for path in made]
        for path in made:
            assert boards[path.name] == path.read_text()
            # `kubectl apply` and Argo CD keep a copy in an annotation, of which all have 256 KiB.
            assert len(json.dumps(boards[path.name])) < 200_000

    def test_the_sidecar_finds_them(self) -> None:
        manifests = render(STATIC | {"dashboards": {"enabled": True, "folder": "LLM"}})
        boards = [m for m in manifests if any(k.endswith(".json") for k in m.get("data", {}))]
        assert len(boards) == 5
        for board in boards:
            assert board["metadata"]["labels"]["grafana_dashboard"] == "1"
            assert board["metadata"]["annotations"] == {"grafana_folder": "LLM"}

    def test_an_unknown_one_is_refused_with_the_known_ones(self) -> None:
        with pytest.raises(
            helm_python.HelmError, match='no board "overview"; there are kvcache-cold-start, '
        ):
            render(STATIC | {"dashboards": {"only": ["overview"]}})

    def test_the_operator_reads_them_from_the_configmap(self) -> None:
        manifests = ALL["dashboards-values"]
        board = one(manifests, "GrafanaDashboard")
        reference = board["spec"]["configMapRef"]
        assert reference["key"] in one(manifests, "ConfigMap", reference["name"])["data"]
        assert board["spec"]["folder"] == "LLM"

    def test_a_release_fits_into_its_secret(self) -> None:
        """Helm keeps chart and manifests gzipped in a Secret of at most 1 MiB, in base64 twice."""
        on = {
            "dashboards": {"enabled": True},
            "prometheusRule": {"enabled": True},
            "rulesConfigMap": {"enabled": True},
        }
        manifest = "".join(rendered_files(merged(STATIC, on)).values())
        chart = "".join(p.read_text() for p in CHART.rglob("*") if p.is_file() and p.parent.name != "ci")
        assert len(gzip.compress((manifest + chart).encode())) * 16 / 9 < 500_000
