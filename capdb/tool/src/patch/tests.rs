mod shapes;
