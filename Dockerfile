# The gateway and the console in a container. `make dist` first: the image holds the wheel, nothing of the clone.
#   docker build -t fingerpost .
#   docker run -v fingerpost:/data fingerpost keys add me
#   docker run -v fingerpost:/data -p 8642:8642 fingerpost
FROM python:3.13-slim
RUN useradd --create-home --home-dir /data --uid 10001 fingerpost
RUN --mount=type=bind,source=dist,target=/dist --mount=type=bind,source=constraints.txt,target=/constraints.txt \
    pip install --no-cache-dir --constraint /constraints.txt "$(ls /dist/fingerpost-*.whl)[postgres,otel]"
USER 10001
WORKDIR /data
VOLUME /data
# Settings, servers and the store are in the home, which is the volume. Other machines need a key.
ENV HOME=/data FINGERPOST_GATEWAY__HOST=0.0.0.0
EXPOSE 8642
HEALTHCHECK --start-period=20s CMD ["python", "-c", "from urllib.request import urlopen; urlopen('http://127.0.0.1:8642/healthz', timeout=3)"]
ENTRYPOINT ["fingerpost"]
CMD ["serve"]
