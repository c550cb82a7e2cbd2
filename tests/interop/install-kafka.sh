#!/bin/sh
# Installs Apache Kafka from Maven Central into a cache outside the checkout: tests/interop/kafka/broker.py starts it.
# It needs a JRE of Java 17 or newer and Maven, which install-peers.sh installs. Usage: install-kafka.sh.
# Does nothing if this version is in the cache. With REQUIRE_PEERS=1, a failure is an error.
set -eu
version=4.3.1
folder=${XDG_CACHE_HOME:-$HOME/.cache}/otel-zernel/peers/kafka-$version

[ ! -e "$folder/.installed" ] || exit 0
give_up() {
    echo "Skipping the tests with Apache Kafka: $1"
    [ "${REQUIRE_PEERS:-}" != 1 ] || exit 1
    exit 0
}
for program in java mvn; do
    command -v $program >/dev/null || give_up "the program $program is missing (Debian: default-jre-headless, maven)"
done
# A line, the first without JAVA_TOOL_OPTIONS, is such as: openjdk version "17.0.15" 2025-04-15
major=$(java -version 2>&1 | sed -n 's/^[^"]* version "\([0-9]*\).*/\1/p')
[ "${major:-0}" -ge 17 ] || give_up "java is older than 17; install a newer one, or put it first in PATH"
echo "Installing Apache Kafka $version in $folder, once. It takes a minute and 60 MB."
mkdir -p "${folder%/*}" 2>/dev/null || give_up "${folder%/*} cannot be made; set XDG_CACHE_HOME"
new=$(mktemp -d "$folder.XXXXXX")
trap 'rm -rf "$new"' EXIT
cat >"$new/pom.xml" <<POM
<project>
  <modelVersion>4.0.0</modelVersion>
  <groupId>otel-zernel</groupId>
  <artifactId>kafka-peer</artifactId>
  <version>1</version>
  <dependencies>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>$version</version></dependency>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka-tools</artifactId><version>$version</version></dependency>
    <dependency><groupId>org.slf4j</groupId><artifactId>slf4j-simple</artifactId><version>1.7.36</version></dependency>
  </dependencies>
</project>
POM
# A repository of its own: what Maven downloads besides the jars is not needed again.
mvn -q -B -f "$new/pom.xml" -Dmaven.repo.local="$new/repository" dependency:copy-dependencies -DoutputDirectory=lib >"$new/log" 2>&1 || {
    tail -n 5 "$new/log"
    give_up "Maven could not install it"
}
rm -rf "$new/repository" "$new/pom.xml" "$new/log"
touch "$new/.installed"
rm -rf "$folder"
mv "$new" "$folder"
